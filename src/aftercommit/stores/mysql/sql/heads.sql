-- The heads of the keys that have the next rows behind where a walk stands, and how many of these rows each key has.
-- Of a long key no more is looked at than one page: the next one begins behind it.
SELECT head.partition_no, head.order_key,
       CASE WHEN :blocks THEN (
         SELECT position FROM {table} FORCE INDEX ({index:order})
         WHERE partition_no = head.partition_no AND is_dead = 1 AND order_key = head.order_key
         ORDER BY position
         LIMIT 1
       ) < head.position END,
       CASE WHEN locked_by IS NOT NULL AND lease_until > {now} THEN TIMESTAMPDIFF(MICROSECOND, {now}, lease_until) END,
       TIMESTAMPDIFF(MICROSECOND, {now}, available_at), head.size
FROM (
  SELECT partition_no, order_key, MIN(position) AS position, COUNT(*) AS size
  FROM (
    SELECT partition_no, order_key, position
    FROM {table} FORCE INDEX ({index:order})
    WHERE is_dead = 0 AND ((partition_no = :first AND order_key > :after_key) OR partition_no IN :others)
    ORDER BY partition_no, is_dead, order_key, position
    LIMIT :rows
  ) AS page
  GROUP BY partition_no, order_key
) AS head
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = head.position
ORDER BY head.partition_no, head.order_key
