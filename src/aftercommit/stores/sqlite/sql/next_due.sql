-- How many microseconds until the next row falls due.
SELECT min(available_at) - {now}
FROM {table}
WHERE status IN (0, 2) AND available_at > {now}
