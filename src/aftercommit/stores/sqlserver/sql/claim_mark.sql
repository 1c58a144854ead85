-- Lease the selected rows, which this transaction has locked.
DECLARE @now datetime2(6) = {now}, @lease bigint = :lock_timeout;
UPDATE {table}
SET locked_by = :owner, locked_at = @now, lease_epoch = lease_epoch + 1,
    lease_until = DATEADD(day, @lease / 1000000 / 86400, DATEADD(second, @lease / 1000000 % 86400,
      DATEADD(microsecond, @lease % 1000000, @now)))
FROM {table} WITH (ROWLOCK)
WHERE position IN (SELECT CAST([value] AS bigint) FROM OPENJSON(CAST(:positions AS nvarchar(max))))
