-- Give leases back, so that anybody can claim the rows at once. A delivery that began has reported by this.
UPDATE {held_rows}
SET abandoned = CASE WHEN held.counted = 1 THEN 0 ELSE abandoned END,
    done_handlers = coalesce(held.done, done_handlers), {free}, lease_epoch = lease_epoch + 1
{if_held_returning}
