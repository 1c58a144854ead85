-- The age in microseconds of the oldest unfinished event of each partition that has one.
SELECT oldest.partition_no, {since:created_at}
FROM (
  SELECT numbered.partition_no, MIN(position) AS position
  FROM {partition_table} AS numbered
  STRAIGHT_JOIN {table} AS waiting FORCE INDEX ({index:order})
    ON waiting.partition_no = numbered.partition_no AND waiting.is_dead = 0
  GROUP BY numbered.partition_no
) AS oldest
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = oldest.position
ORDER BY oldest.partition_no
