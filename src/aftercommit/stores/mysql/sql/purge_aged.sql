-- Delete these rows, as long as they are old enough.
DELETE {table}
FROM JSON_TABLE(:positions, '$[*]' COLUMNS (position BIGINT PATH '$')) AS old
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = old.position
WHERE created_at <= {now_minus:older_than}
