-- The failures of rows that are no more are gone.
DELETE FROM {failure_table}
WHERE EXISTS (
  SELECT 1
  FROM {held}
  WHERE {failure_table}.event_id = held.event_id AND {failure_table}.handler_id = held.handler_id
)
