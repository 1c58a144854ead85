-- Have a duty that nobody ever had.
INSERT INTO {schema_table} (name, value)
SELECT :duty, :mine
WHERE NOT EXISTS (SELECT 1 FROM {schema_table} WITH (UPDLOCK, HOLDLOCK) WHERE name = :duty)
