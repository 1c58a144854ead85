-- Which of the rows that this transaction wrote it still has.
SELECT event_id, handler_id
FROM {table}
WHERE event_id IN (
  SELECT event_id COLLATE Latin1_General_100_BIN2
  FROM OPENJSON(CAST(:event_ids AS nvarchar(max))) WITH (event_id nvarchar(72) '$')
)
