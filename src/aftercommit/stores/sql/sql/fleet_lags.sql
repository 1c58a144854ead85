-- The age in microseconds of the oldest unfinished event of each partition that has one.
SELECT partition_no, {since:min(created_at)}
FROM {table_by:order}
WHERE {unfinished}
GROUP BY partition_no
ORDER BY partition_no
