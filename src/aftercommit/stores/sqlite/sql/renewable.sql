-- Which of these leases still stand. A row that was settled has no owner and does not match.
SELECT {table}.event_id, {table}.handler_id
FROM {table}, {held}
WHERE {fence}
