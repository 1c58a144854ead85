-- Unfinished and dead rows by event type, handler and status, and for how long the first has been due; so many of each.
SELECT event_type, handler_id, status, COUNT(*), {since:min(available_at)}
FROM (
  (SELECT event_type, handler_id, status, available_at
   FROM {table} FORCE INDEX ({index:pending})
   WHERE status = 0
   ORDER BY available_at, position
   LIMIT :limit)
  UNION ALL
  (SELECT event_type, handler_id, status, available_at
   FROM {table} FORCE INDEX ({index:pending})
   WHERE status = 2
   ORDER BY available_at, position
   LIMIT :limit)
) AS pending
GROUP BY event_type, handler_id, status
UNION ALL
SELECT event_type, handler_id, 3, COUNT(*), NULL
FROM (
  SELECT event_type, handler_id
  FROM {table} FORCE INDEX ({index:dead})
  WHERE status = 3
  ORDER BY position
  LIMIT :limit
) AS dead
GROUP BY event_type, handler_id
