-- Keep so many failures of a row, the last ones.
DELETE FROM {failure_table}
WHERE event_id = :event_id AND handler_id = :handler_id
  AND number <= (
    SELECT number
    FROM (
      SELECT number
      FROM {failure_table}
      WHERE event_id = :event_id AND handler_id = :handler_id
      ORDER BY number DESC
      LIMIT 1 OFFSET :kept
    ) AS surplus
  )
