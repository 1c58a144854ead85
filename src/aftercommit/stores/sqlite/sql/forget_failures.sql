-- The failures of rows that are no more are gone.
DELETE FROM {failure_table}
WHERE number IN (
  SELECT number
  FROM {held} CROSS JOIN {failure_table} AS failure
  WHERE failure.event_id = held.event_id AND failure.handler_id = held.handler_id
)
