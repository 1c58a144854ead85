-- Which of the rows that this transaction wrote it still has.
SELECT event_id, handler_id
FROM {table}
WHERE event_id = ANY (:event_ids::text::text[])
