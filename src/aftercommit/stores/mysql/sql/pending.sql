-- How many unfinished rows each partition has that has any.
SELECT numbered.partition_no, COUNT(*)
FROM {partition_table} AS numbered
STRAIGHT_JOIN {table} AS waiting FORCE INDEX ({index:order})
  ON waiting.partition_no = numbered.partition_no AND waiting.is_dead = 0
GROUP BY numbered.partition_no
