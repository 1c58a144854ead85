-- Know it no more.
DELETE FROM {schema_table} WHERE name = :name
