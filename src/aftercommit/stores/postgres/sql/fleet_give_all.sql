-- Own nothing any more.
WITH mine AS MATERIALIZED (
  SELECT partition_no FROM {partition_table} WHERE owner = :id ORDER BY partition_no FOR UPDATE
)
UPDATE {partition_table} AS partition
SET owner = NULL, epoch = epoch + 1, expires_at = {now}
FROM mine
WHERE partition.partition_no = mine.partition_no
