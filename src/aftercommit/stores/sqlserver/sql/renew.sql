-- Prolong leases from now on. A row that somebody has locked is being settled, and is passed over.
DECLARE @lease bigint = :lock_timeout;
UPDATE {table}
SET lease_until = DATEADD(day, @lease / 1000000 / 86400, DATEADD(second, @lease / 1000000 % 86400,
  DATEADD(microsecond, @lease % 1000000, {now})))
OUTPUT inserted.event_id, inserted.handler_id
FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
INNER JOIN {held} ON {fence} AND ids_size = held.size
