-- The age in microseconds of the oldest unfinished event of each partition that has one.
SELECT partition_no, DATEDIFF_BIG(microsecond, MIN(created_at), {now})
FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
WHERE status IN (0, 2)
GROUP BY partition_no
ORDER BY partition_no
