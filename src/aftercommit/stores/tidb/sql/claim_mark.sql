-- Lease the selected rows, which this transaction has locked.
UPDATE {table}
SET locked_by = :owner, locked_at = {now}, lease_until = {now_plus:lock_timeout},
    lease_epoch = lease_epoch + 1
WHERE position IN :positions AND status IN (0, 2) AND (locked_by IS NULL OR lease_until <= {now})
