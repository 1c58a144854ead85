-- Own partitions that are free and still as they were seen. What somebody has locked is passed over: they are faster.
WITH free AS MATERIALIZED (
  SELECT partition_no
  FROM {partition_table} AS held, json_array_elements(:seen::json) AS seen
  WHERE partition_no = (seen ->> 0)::integer AND epoch = (seen ->> 1)::integer
    AND (owner IS NULL OR expires_at <= {now})
  FOR UPDATE OF held SKIP LOCKED
)
UPDATE {partition_table} AS partition
SET owner = :id, epoch = epoch + 1, expires_at = {now_plus:lasts}
FROM free
WHERE partition.partition_no = free.partition_no
