-- Whom unfinished rows wait for, the most first.
SELECT TOP (:limit) handler_id, aggregate_type, event_type, COUNT_BIG(*)
FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
WHERE {unfinished}
GROUP BY handler_id, aggregate_type, event_type
ORDER BY COUNT_BIG(*) DESC
