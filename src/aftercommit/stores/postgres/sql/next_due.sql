-- How many microseconds until the next row falls due.
SELECT (extract(epoch FROM min(available_at) - {now}) * 1000000)::bigint
FROM {table}
WHERE status NOT IN (1, 3) AND available_at > {now}
