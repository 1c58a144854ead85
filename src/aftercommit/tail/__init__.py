"""Delivering from PostgreSQL's log instead of its table: the façade of the tail, and what it has of its own."""
