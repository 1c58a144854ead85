-- The age in microseconds of the oldest unfinished event of each partition that has one.
SELECT partition_no, (extract(epoch FROM {now} - min(created_at)) * 1000000)::bigint
FROM {table}
WHERE status NOT IN (1, 3)
GROUP BY partition_no
ORDER BY partition_no
