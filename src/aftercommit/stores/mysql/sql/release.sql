-- Give leases back, so that anybody can claim the rows at once. A delivery that began has reported by this.
UPDATE {held}
STRAIGHT_JOIN {table} FORCE INDEX ({index:event}) ON {fence}
SET abandoned = CASE WHEN held.counted = 1 THEN 0 ELSE abandoned END,
    done_handlers = COALESCE(held.done, done_handlers),
    locked_by = NULL, locked_at = NULL, lease_until = NULL, lease_epoch = lease_epoch + 1
