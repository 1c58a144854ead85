-- Unfinished rows by status, leases that stand, and the age of the oldest row that is due.
SELECT COALESCE(SUM(CASE WHEN status = 0 THEN 1 ELSE 0 END), 0),
       COALESCE(SUM(CASE WHEN status = 2 THEN 1 ELSE 0 END), 0),
       (SELECT COUNT(*) FROM {table} WITH (READPAST, READCOMMITTEDLOCK) WHERE status = 3),
       COALESCE(SUM(CASE WHEN locked_by IS NOT NULL AND lease_until > {now} THEN 1 ELSE 0 END), 0),
       COALESCE(DATEDIFF_BIG(microsecond, MIN(CASE WHEN available_at <= {now} THEN available_at END), {now}), 0)
FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
WHERE status IN (0, 2)
