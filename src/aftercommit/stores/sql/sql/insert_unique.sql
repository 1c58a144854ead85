-- Write one event in the caller's transaction, unless another one that is not done has its unique key.
INSERT INTO {table} ({written}, unique_key) VALUES ({values}, :unique_key)
ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND {unfinished} DO NOTHING
