-- These dead rows are NEW again, with all their attempts, under a new epoch.
UPDATE JSON_TABLE(:positions, '$[*]' COLUMNS (position BIGINT PATH '$')) AS selected
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = selected.position
SET {new_again}
WHERE status = 3
