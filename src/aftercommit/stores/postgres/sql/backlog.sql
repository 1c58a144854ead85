-- Unfinished rows by status, leases that stand, and the age in microseconds of the oldest row that is due.
SELECT count(*) FILTER (WHERE status = 0), count(*) FILTER (WHERE status = 2),
       (SELECT count(*) FROM {table} WHERE status >= 3),
       count(*) FILTER (WHERE locked_by IS NOT NULL AND lease_until > {now}),
       coalesce((extract(epoch FROM {now} - min(available_at) FILTER (WHERE available_at <= {now})) * 1000000)::bigint, 0)
FROM {table}
WHERE {unfinished}
