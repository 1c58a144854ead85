-- Delete from the front of the table what is old enough, whatever its status.
DELETE {table}
FROM (SELECT position FROM {table} FORCE INDEX (PRIMARY) ORDER BY position LIMIT :limit) AS front
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = front.position
WHERE created_at < {now_minus:older_than}
