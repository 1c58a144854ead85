-- A new epoch for rows that a claim has locked and passed over.
-- Another claimer that saw them before, and for whom they have fallen due, leases nothing of their keys beside it.
UPDATE {table}
SET lease_epoch = lease_epoch + 1
FROM {table} WITH (ROWLOCK)
WHERE position IN (SELECT CAST([value] AS bigint) FROM OPENJSON(CAST(:positions AS nvarchar(max))))
