-- These dead rows are NEW again, with all their attempts, under a new epoch.
UPDATE JSON_TABLE(:positions, '$[*]' COLUMNS (position BIGINT PATH '$')) AS selected
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = selected.position
SET status = 0, attempts = 0, abandoned = 0, available_at = {now}, done_at = NULL, last_error = NULL,
    done_handlers = NULL, locked_by = NULL, locked_at = NULL, lease_until = NULL, lease_epoch = lease_epoch + 1
WHERE status = 3
