-- Give leases back: anybody can claim the rows at once. What began has reported by this; else a suspect stays one.
UPDATE {held_rows}
SET abandoned = CASE held.counted WHEN 1 THEN 0 WHEN -2 THEN abandoned - 1 ELSE abandoned END,
    done_handlers = coalesce(held.done, done_handlers),
    locked_by = CASE WHEN held.counted < 0 THEN '' END, locked_at = NULL,
    lease_until = CASE WHEN held.counted < 0 THEN {now} END, lease_epoch = lease_epoch + 1
{if_held_returning}
