-- Delete from the front of the table what is old enough, whatever its status.
DECLARE @age bigint = :older_than;
DELETE FROM {table} WITH (ROWLOCK)
WHERE position IN (
  SELECT position
  FROM (
    SELECT TOP (:limit) position, created_at
    FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ORDER BY position
  ) AS front
  WHERE created_at < DATEADD(day, -@age / 1000000 / 86400, DATEADD(second, -@age / 1000000 % 86400,
    DATEADD(microsecond, -@age % 1000000, {now})))
)
