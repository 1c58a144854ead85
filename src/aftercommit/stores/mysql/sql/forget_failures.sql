-- The failures of rows that are no more are gone.
DELETE {failure_table}
FROM {held}
STRAIGHT_JOIN {failure_table} FORCE INDEX ({index:failed})
  ON {failure_table}.event_id = held.event_id AND {failure_table}.handler_id = held.handler_id
