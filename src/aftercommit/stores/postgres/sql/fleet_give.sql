-- Own partitions no more, where owner and epoch still stand.
WITH mine AS MATERIALIZED (
  SELECT partition_no
  FROM {partition_table} AS held, json_array_elements(:seen::json) AS seen
  WHERE partition_no = (seen ->> 0)::integer AND epoch = (seen ->> 1)::integer AND owner = :id
  ORDER BY partition_no
  FOR UPDATE OF held
)
UPDATE {partition_table} AS partition
SET owner = NULL, epoch = epoch + 1, expires_at = {now}
FROM mine
WHERE partition.partition_no = mine.partition_no
