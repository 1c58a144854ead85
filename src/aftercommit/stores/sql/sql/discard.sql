-- Dead rows of one event end without being delivered; the reason stays to be read.
UPDATE {change_by:event}
SET status = 1, done_at = {now}, last_error = :error, lease_epoch = lease_epoch + 1
WHERE status = 3 AND {of_event}
