"""The caller's transaction: the outbox's own blocks, and connections that the caller steers."""
