-- How many unfinished rows.
SELECT count(*)
FROM {table_by:pending}
WHERE {unfinished} AND (:status IS NULL OR status = :status) AND {matching}
