-- What this outbox was made with.
SELECT name, value FROM {schema_table}
