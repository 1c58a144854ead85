-- Unfinished rows by status, leases that stand, and the age of the oldest row that is due.
SELECT coalesce(sum(status = 0), 0), coalesce(sum(status = 2), 0),
       (SELECT count(*) FROM {table} WHERE status IN (1, 3) AND status = 3),
       coalesce(sum(locked_by IS NOT NULL AND lease_until > {now}), 0),
       coalesce({now} - min(CASE WHEN available_at <= {now} THEN available_at END), 0)
FROM {table}
WHERE status IN (0, 2)
