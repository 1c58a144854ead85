-- How many microseconds until the next row falls due.
SELECT (extract(epoch FROM min(available_at) - {now}) * 1000000)::bigint
FROM {table}
WHERE status IN (0, 2) AND available_at > {now}
