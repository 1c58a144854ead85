"""The databases that can hold an outbox. One store over SQL; dialects are data, drivers are executors."""
