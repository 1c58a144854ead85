-- How many dead events.
SELECT COUNT(*)
FROM {table} FORCE INDEX ({index:dead})
WHERE status = 3
  AND (:event_type IS NULL OR event_type = :event_type)
  AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
