-- Have a duty that nobody ever had.
INSERT IGNORE INTO {schema_table} (name, value) VALUES (:duty, :mine)
