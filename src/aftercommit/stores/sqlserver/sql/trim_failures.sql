-- Keep so many failures of a row, the last ones.
DELETE FROM {failure_table}
WHERE event_id = :event_id AND handler_id = :handler_id
  AND number <= (
    SELECT number
    FROM {failure_table}
    WHERE event_id = :event_id AND handler_id = :handler_id
    ORDER BY number DESC
    OFFSET :kept ROWS FETCH NEXT 1 ROWS ONLY
  )
