-- How many unfinished rows each partition has that has any.
SELECT partition_no, count(*)
FROM {table_by:order}
WHERE {unfinished}
GROUP BY partition_no
