-- Unfinished and dead rows by event type, handler and status, and for how long the first has been due; so many of each.
SELECT event_type, handler_id, status, count(*), {since:min(available_at)}
FROM (
  SELECT event_type, handler_id, status, available_at
  FROM {table_by:pending}
  WHERE {unfinished}
  ORDER BY available_at, position
  LIMIT :limit
) AS pending
GROUP BY event_type, handler_id, status
UNION ALL
SELECT event_type, handler_id, 3, count(*), NULL
FROM (SELECT event_type, handler_id FROM {table_by:dead} WHERE {is_dead} ORDER BY position LIMIT :limit) AS dead
GROUP BY event_type, handler_id
