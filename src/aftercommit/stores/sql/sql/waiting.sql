-- Whom unfinished rows wait for, the most first.
SELECT handler_id, aggregate_type, event_type, count(*)
FROM {table_by:pending}
WHERE {unfinished}
GROUP BY handler_id, aggregate_type, event_type
ORDER BY count(*) DESC
LIMIT :limit
