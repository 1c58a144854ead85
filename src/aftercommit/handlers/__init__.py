"""Who receives events: handlers, listeners, and the way to them."""
