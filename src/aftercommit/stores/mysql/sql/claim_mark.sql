-- Lease the selected rows, which this transaction has locked.
UPDATE JSON_TABLE(:positions, '$[*]' COLUMNS (position BIGINT PATH '$')) AS selected
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = selected.position
SET locked_by = :owner, locked_at = {now}, lease_until = {now_plus:lock_timeout},
    lease_epoch = lease_epoch + 1
WHERE status IN (0, 2) AND (locked_by IS NULL OR lease_until <= {now})
