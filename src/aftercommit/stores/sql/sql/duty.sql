-- Who has a duty.
SELECT value FROM {schema_table} WHERE name = :duty
