-- Give leases back unused, so that anybody can claim the rows at once.
UPDATE {table}
SET locked_by = NULL, locked_at = NULL, lease_until = NULL, lease_epoch = lease_epoch + 1
FROM {held}
WHERE {fence}
