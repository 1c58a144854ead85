-- Unfinished rows by status, leases that stand, and the age of the oldest row that is due.
SELECT CAST(COALESCE(SUM(status = 0), 0) AS SIGNED), CAST(COALESCE(SUM(status = 2), 0) AS SIGNED),
       (SELECT COUNT(*) FROM {table} FORCE INDEX ({index:dead}) WHERE status = 3),
       CAST(COALESCE(SUM(locked_by IS NOT NULL AND lease_until > {now}), 0) AS SIGNED),
       COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN available_at <= {now} THEN available_at END), {now}), 0)
FROM {table} FORCE INDEX ({index:pending})
WHERE status IN (0, 2)
