-- Done rows of one event are NEW again, with all their attempts, under a new epoch.
UPDATE {change_by:event}
SET {new_again}
WHERE status = 1 AND {of_event}
