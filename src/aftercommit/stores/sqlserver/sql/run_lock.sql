-- Lock the rows of runs by their position, and pass over what others have locked.
-- A row that is not as it was seen does not come back.
DECLARE @now datetime2(6) = {now}, @owner nvarchar(256) = :owner;
SELECT {table}.position, event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key,
  payload, payload_bytes, headers, occurred_at, scheduled_at, attempts, abandoned, {table}.lease_epoch,
  CASE WHEN locked_by <> @owner THEN 1 ELSE 0 END, created_at, available_at, content_type, payload_version,
  done_handlers, @now
FROM OPENJSON(CAST(:candidates AS nvarchar(max))) WITH (
  position bigint '$[0]', lease_epoch int '$[1]', is_due int '$[2]'
) AS candidate
INNER JOIN {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
  ON {table}.position = candidate.position
WHERE status IN (0, 2)
  AND {table}.lease_epoch = candidate.lease_epoch
  AND (available_at <= @now OR candidate.is_due = 0)
  AND (locked_by IS NULL OR lease_until <= @now)
