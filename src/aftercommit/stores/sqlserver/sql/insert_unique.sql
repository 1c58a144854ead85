-- Write one event in the caller's transaction, unless another one that is not done has its unique key.
-- Whoever asks for the same key waits until this transaction has ended.
INSERT INTO {table} ({written}, unique_key)
SELECT {values}, :unique_key
WHERE NOT EXISTS (
  SELECT 1
  FROM {table} WITH (UPDLOCK, HOLDLOCK, INDEX({index:unique}))
  WHERE unique_bytes = CAST(:unique_key AS varbinary(1020)) AND unique_key IS NOT NULL AND {unfinished}
)
