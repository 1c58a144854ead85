-- How many microseconds until the next row falls due.
SELECT {until:min(available_at)}
FROM {table_by:pending}
WHERE {unfinished} AND available_at > {now}
