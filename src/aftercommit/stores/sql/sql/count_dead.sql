-- How many dead events.
SELECT count(*)
FROM {table_by:dead}
WHERE {is_dead}
  AND (:event_type IS NULL OR event_type = :event_type)
  AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
