-- The first dead row of each key, by position. One without a key counts when other rows of its event wait behind it.
SELECT order_key, event_id, handler_id, event_type, last_error
FROM {table} AS dead FORCE INDEX ({index:dead})
WHERE status = 3
  AND NOT EXISTS (
    SELECT 1 FROM {table} AS earlier FORCE INDEX ({index:order})
    WHERE earlier.partition_no = dead.partition_no AND earlier.is_dead = 1 AND earlier.order_key = dead.order_key
      AND earlier.position < dead.position
  )
  AND (event_key IS NOT NULL OR EXISTS (
    SELECT 1 FROM {table} AS later FORCE INDEX ({index:order})
    WHERE later.partition_no = dead.partition_no AND later.is_dead = 0 AND later.order_key = dead.order_key
      AND later.position > dead.position
  ))
ORDER BY position
LIMIT :limit
