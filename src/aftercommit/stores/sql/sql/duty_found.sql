-- Have a duty that nobody ever had.
INSERT INTO {schema_table} (name, value) VALUES (:duty, :mine)
ON CONFLICT (name) DO NOTHING
