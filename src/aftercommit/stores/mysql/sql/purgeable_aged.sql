-- What is old enough at the front of the table, whatever its status.
SELECT position, event_id, handler_id
FROM (
  SELECT position, event_id, handler_id, created_at
  FROM {table} FORCE INDEX (PRIMARY)
  ORDER BY position
  LIMIT :limit
) AS front
WHERE created_at <= {now_minus:older_than}
