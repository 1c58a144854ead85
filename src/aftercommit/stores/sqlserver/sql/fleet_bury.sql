-- Remove a member, unless it was heard meanwhile.
DECLARE @age bigint = :silent_for;
DELETE FROM {instance_table}
WHERE id = :id
  AND heartbeat_at < DATEADD(day, -@age / 1000000 / 86400, DATEADD(second, -@age / 1000000 % 86400,
    DATEADD(microsecond, -@age % 1000000, {now})))
