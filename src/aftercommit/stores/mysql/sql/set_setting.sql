-- Keep one fact about this outbox.
INSERT INTO {schema_table} (name, value) VALUES (:name, :value)
ON DUPLICATE KEY UPDATE value = :value
