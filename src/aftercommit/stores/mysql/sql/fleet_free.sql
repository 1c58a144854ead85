-- Lock partitions that are free and still as they were seen. What somebody has locked is passed over: they are faster, or
-- stand still.
SELECT held.partition_no, held.epoch
FROM JSON_TABLE(:seen, '$[*]' COLUMNS (number INT PATH '$[0]', epoch INT PATH '$[1]')) AS seen
STRAIGHT_JOIN {partition_table} AS held FORCE INDEX (PRIMARY) ON held.partition_no = seen.number
WHERE held.epoch = seen.epoch AND (held.owner IS NULL OR held.expires_at <= {now})
FOR UPDATE /*!80000 OF held */ SKIP LOCKED
