-- Write one event in the caller's transaction. An error if another one that is not done has its unique key.
INSERT INTO {table} ({written}, unique_key) VALUES ({values}, :unique_key)
