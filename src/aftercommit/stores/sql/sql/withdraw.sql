-- Unfinished rows of one event that nobody holds are deleted without being delivered.
DELETE FROM {table}
WHERE status IN (0, 2) AND {of_event} AND (locked_by IS NULL OR lease_until <= {now})
