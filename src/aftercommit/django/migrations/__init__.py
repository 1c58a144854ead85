"""The tables of the outbox, step by step."""
