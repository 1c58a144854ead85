-- The rows of events whose ids lie between two texts.
SELECT TOP (:limit) {recorded}
FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
WHERE event_id >= :event_id AND event_id <= :last_id
ORDER BY event_id, handler_id
