-- Give a lease back unused, so that anybody can claim the row at once.
UPDATE {table}
SET locked_by = NULL, locked_at = NULL, lease_until = NULL, lease_epoch = lease_epoch + 1
WHERE {fence}
