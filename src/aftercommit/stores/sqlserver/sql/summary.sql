-- Unfinished and dead rows by event type, handler and status, and for how long the first has been due; so many of each.
SELECT event_type, handler_id, status, COUNT(*), {since:min(available_at)}
FROM (
  SELECT TOP (:limit) event_type, handler_id, status, available_at
  FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
  WHERE status IN (0, 2)
  ORDER BY available_at, position
) AS pending
GROUP BY event_type, handler_id, status
UNION ALL
SELECT event_type, handler_id, 3, COUNT(*), NULL
FROM (
  SELECT TOP (:limit) event_type, handler_id
  FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
  WHERE status = 3
  ORDER BY position
) AS dead
GROUP BY event_type, handler_id
