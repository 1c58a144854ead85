-- Others of whom nothing was heard for longer than that.
DECLARE @age bigint = :silent_for;
SELECT id
FROM {instance_table}
WHERE id <> :but
  AND heartbeat_at < DATEADD(day, -@age / 1000000 / 86400, DATEADD(second, -@age / 1000000 % 86400,
    DATEADD(microsecond, -@age % 1000000, {now})))
ORDER BY id
