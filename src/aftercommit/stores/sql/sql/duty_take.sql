-- Have a duty, if it is still as it was seen.
UPDATE {schema_table} SET value = :mine WHERE name = :duty AND value = :over
