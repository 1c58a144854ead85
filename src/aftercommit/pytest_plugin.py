"""The pytest plugin: fixtures for programs that use an outbox. It loads nothing of it before one is asked for."""
