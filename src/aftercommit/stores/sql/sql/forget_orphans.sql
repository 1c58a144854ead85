-- The failures of an event's rows that are no more are gone.
DELETE FROM {failure_table}
WHERE {of_event}
  AND NOT EXISTS (
    SELECT 1
    FROM {table}
    WHERE {table}.event_id = {failure_table}.event_id AND {table}.handler_id = {failure_table}.handler_id
  )
