-- The failures of a row that is no more are gone.
DELETE FROM {failure_table}
WHERE event_id = held.event_id AND handler_id = held.handler_id
