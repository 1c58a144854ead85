-- Dead rows of one event are NEW again, with all their attempts, under a new epoch.
UPDATE {table}
SET {new_again}
WHERE status = 3
  AND event_id = :event_id AND DATALENGTH(event_id) = DATALENGTH(:event_id)
  AND (:handler_id IS NULL OR (handler_id = :handler_id AND DATALENGTH(handler_id) = DATALENGTH(:handler_id)))
