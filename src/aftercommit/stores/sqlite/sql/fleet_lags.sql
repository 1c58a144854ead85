-- The age in microseconds of the oldest unfinished event of each partition that has one.
SELECT partition_no, {now} - min(created_at)
FROM {table}
WHERE status IN (0, 2)
GROUP BY partition_no
ORDER BY partition_no
