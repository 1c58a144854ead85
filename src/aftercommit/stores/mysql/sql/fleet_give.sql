-- Own partitions no more, where owner and epoch still stand.
UPDATE JSON_TABLE(:seen, '$[*]' COLUMNS (number INT PATH '$[0]', epoch INT PATH '$[1]')) AS seen
STRAIGHT_JOIN {partition_table} AS held FORCE INDEX (PRIMARY) ON held.partition_no = seen.number
SET held.owner = NULL, held.epoch = held.epoch + 1, held.expires_at = {now}
WHERE held.epoch = seen.epoch AND held.owner = :id
