-- Write one plain event in the caller's transaction; born free. All times are the database's.
INSERT INTO {table} ({plain}) VALUES ({plain_values})
