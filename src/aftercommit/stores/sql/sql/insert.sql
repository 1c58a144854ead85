-- Write one event in the caller's transaction; born leased when it has an owner. All times are the database's.
INSERT INTO {table} ({written}) VALUES ({values})
