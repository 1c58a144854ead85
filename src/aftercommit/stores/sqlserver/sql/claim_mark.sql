-- Lease the selected rows, which this transaction has locked.
UPDATE {table}
SET locked_by = :owner, locked_at = {now}, lease_until = {now_plus:lock_timeout}, lease_epoch = lease_epoch + 1
FROM {table} WITH (ROWLOCK)
WHERE position IN (SELECT CAST([value] AS bigint) FROM OPENJSON(CAST(:positions AS nvarchar(max))))
