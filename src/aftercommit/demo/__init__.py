"""A small order service that shows the walk of an event: `python -m aftercommit.demo`. It needs no extra."""
