-- What was put off until a time that is near is due now, of a type and for a handler id, whoever has put it off.
UPDATE {table}
SET available_at = {now}
WHERE status = 2 AND locked_by IS NULL AND available_at > {now} AND available_at <= {now_plus:within}
  AND (:event_type IS NULL OR event_type = :event_type) AND (:handler_id IS NULL OR handler_id = :handler_id)
