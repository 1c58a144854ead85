-- Own for longer what is owned, even after its time as long as nobody has taken it.
WITH mine AS MATERIALIZED (
  SELECT partition_no FROM {partition_table} WHERE owner = :id ORDER BY partition_no FOR UPDATE
)
UPDATE {partition_table} AS partition
SET expires_at = {now_plus:lasts}
FROM mine
WHERE partition.partition_no = mine.partition_no
