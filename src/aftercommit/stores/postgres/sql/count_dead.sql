-- How many dead events.
SELECT count(*)
FROM {table}
WHERE status >= 3
  AND (:event_type::text IS NULL OR event_type = :event_type::text)
  AND (:aggregate_type::text IS NULL OR aggregate_type = :aggregate_type::text)
