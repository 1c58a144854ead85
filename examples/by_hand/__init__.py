"""Writer, dispatcher and poller wired by hand, as the specification's quick start does it."""
