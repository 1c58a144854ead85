"""What an outbox answers over HTTP."""
