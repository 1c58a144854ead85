-- Which of the rows that this transaction wrote it still has.
SELECT event_id, handler_id
FROM {table} FORCE INDEX ({index:event})
WHERE event_id IN :event_ids
