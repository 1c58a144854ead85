-- The first dead row of each key, by position. One without a key counts when other rows of its event wait behind it.
SELECT TOP (:limit) COALESCE(event_key, event_id), event_id, handler_id, event_type, last_error
FROM {table} AS dead WITH (READPAST, READCOMMITTEDLOCK)
WHERE status = 3
  AND NOT EXISTS (
    SELECT 1 FROM {table} AS earlier WITH (READPAST, READCOMMITTEDLOCK)
    WHERE earlier.status = 3 AND earlier.partition_no = dead.partition_no AND earlier.order_key = dead.order_key
      AND earlier.position < dead.position
  )
  AND (event_key IS NOT NULL OR EXISTS (
    SELECT 1 FROM {table} AS later WITH (READPAST, READCOMMITTEDLOCK)
    WHERE later.status IN (0, 2) AND later.partition_no = dead.partition_no AND later.order_key = dead.order_key
      AND later.position > dead.position
  ))
ORDER BY position
