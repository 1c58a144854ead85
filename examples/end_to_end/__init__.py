"""From an outbox over RabbitMQ to an inbox, with a kill -9 at every step: docs/end-to-end.md."""
