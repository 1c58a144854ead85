-- The first dead row of each key. One without a key counts when other rows of its event wait behind it.
SELECT coalesce(event_key, event_id), event_id, handler_id, event_type, last_error
FROM {table} AS dead
WHERE status >= 3
  AND NOT EXISTS (
    SELECT 1 FROM {table} AS earlier
    WHERE earlier.status >= 3
      AND earlier.partition_no = dead.partition_no
      AND coalesce(earlier.event_key, earlier.event_id) = coalesce(dead.event_key, dead.event_id)
      AND earlier.position < dead.position
  )
  AND (event_key IS NOT NULL OR EXISTS (
    SELECT 1 FROM {table} AS later
    WHERE later.status NOT IN (1, 3)
      AND later.partition_no = dead.partition_no
      AND coalesce(later.event_key, later.event_id) = dead.event_id
      AND later.position > dead.position
  ))
ORDER BY position
LIMIT :limit
