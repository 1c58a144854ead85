-- Lease the selected rows. The write lock is held since before the select, so nobody can have come between.
UPDATE {table}
SET locked_by = :owner, locked_at = {now}, lease_until = {now_plus:lock_timeout}, lease_epoch = lease_epoch + 1
FROM json_each(:positions) AS selected
WHERE position = selected.value
