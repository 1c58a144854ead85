-- Prolong leases from now on. A row that was settled has no owner and does not match.
UPDATE {table}
SET lease_until = {now} + :lock_timeout
FROM {held}
WHERE {fence}
RETURNING event_id, handler_id
