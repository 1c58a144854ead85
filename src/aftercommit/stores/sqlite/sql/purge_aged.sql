-- Delete from the front of the table what is old enough, whatever its status.
DELETE FROM {table}
WHERE position IN (
  SELECT position
  FROM (SELECT position, created_at FROM {table} ORDER BY position LIMIT :limit)
  WHERE created_at <= {now_minus:older_than}
)
RETURNING event_id, handler_id
