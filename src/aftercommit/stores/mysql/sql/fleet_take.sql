-- Own partitions that are free and still as they were seen.
UPDATE JSON_TABLE(:seen, '$[*]' COLUMNS (number INT PATH '$[0]', epoch INT PATH '$[1]')) AS seen
STRAIGHT_JOIN {partition_table} AS held FORCE INDEX (PRIMARY) ON held.partition_no = seen.number
SET held.owner = :id, held.epoch = held.epoch + 1, held.expires_at = {now_plus:lasts}
WHERE held.epoch = seen.epoch AND (held.owner IS NULL OR held.expires_at <= {now})
