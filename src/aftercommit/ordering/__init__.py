"""One key after another, over a fleet."""
