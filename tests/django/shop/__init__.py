"""An app of a user: orders, and a handler that is found by itself."""
