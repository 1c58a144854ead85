-- Lock the rows of runs by their position, and pass over what others have locked.
-- A row that is not as it was seen does not come back.
SELECT {claimed:table}, {table}.lease_epoch, CASE WHEN locked_by <> :owner THEN 1 ELSE 0 END, {now}
FROM OPENJSON(CAST(:candidates AS nvarchar(max))) WITH (
  position bigint '$[0]', lease_epoch int '$[1]', is_due int '$[2]'
) AS candidate
INNER JOIN {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
  ON {table}.position = candidate.position
WHERE status IN (0, 2)
  AND {table}.lease_epoch = candidate.lease_epoch
  AND (available_at <= {now} OR candidate.is_due = 0)
  AND (locked_by IS NULL OR lease_until <= {now})
