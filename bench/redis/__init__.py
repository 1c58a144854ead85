"""The Redis store beside its own scripts driven by hand, and beside PostgreSQL. Each measure has keys of its own."""
