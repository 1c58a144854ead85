"""A small order service that shows the walk of an event: `python -m aftercommit.demo`. Needs nothing but the package."""
