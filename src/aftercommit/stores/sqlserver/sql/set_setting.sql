-- Keep one fact about this outbox. The schema lock is held, so nobody comes between.
UPDATE {schema_table} SET value = :value WHERE name = :name;
INSERT INTO {schema_table} (name, value)
SELECT :name, :value
WHERE NOT EXISTS (SELECT 1 FROM {schema_table} WHERE name = :name)
