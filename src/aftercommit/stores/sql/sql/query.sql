-- Rows before a place, those with the greatest ids first.
SELECT {recorded}
FROM {table_by:event}
WHERE event_id <= :before_id AND (event_id < :before_id OR handler_id < :before_handler)
  AND (:status IS NULL OR status = :status)
  AND {matching}
ORDER BY event_id DESC, handler_id DESC
LIMIT :limit
