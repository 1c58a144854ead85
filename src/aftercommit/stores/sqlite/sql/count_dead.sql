-- How many dead events.
SELECT count(*)
FROM {table}
WHERE status = 3
  AND (:event_type IS NULL OR event_type = :event_type)
  AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
