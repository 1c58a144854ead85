-- Prolong leases from now on. A row that somebody has locked is being settled, and is passed over.
UPDATE {table}
SET lease_until = {now_plus:lock_timeout}
OUTPUT inserted.event_id, inserted.handler_id
FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
INNER JOIN {held} ON {fence}
