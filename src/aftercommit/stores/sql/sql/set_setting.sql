-- Keep one fact about this outbox.
INSERT INTO {schema_table} (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
