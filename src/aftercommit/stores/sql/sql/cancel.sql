-- Unfinished rows of one event that nobody holds end without being delivered, under a new epoch.
UPDATE {change_by:event}
SET status = 1, done_at = {now}, last_error = 'cancelled', abandoned = 0, {free}, lease_epoch = lease_epoch + 1
WHERE status IN (0, 2) AND {of_event} AND (locked_by IS NULL OR lease_until <= {now})
