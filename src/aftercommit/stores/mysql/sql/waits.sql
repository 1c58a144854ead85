-- How long the last lease among the first rows of one key lasts, and when the first of them is due.
-- A dead row hides what is behind it, if it blocks.
SELECT :number,
       MAX(CASE WHEN locked_by IS NOT NULL AND lease_until > {now} THEN {until:lease_until} END),
       MIN({until:available_at})
FROM (
  SELECT position, available_at, locked_by, lease_until
  FROM {table} FORCE INDEX ({index:order})
  WHERE partition_no = :partition AND is_dead = 0 AND order_key = :key
  ORDER BY position
  LIMIT :rows
) AS front
WHERE NOT :blocks OR position < COALESCE((
  SELECT position FROM {table} FORCE INDEX ({index:order})
  WHERE partition_no = :partition AND is_dead = 1 AND order_key = :key
  ORDER BY position
  LIMIT 1
), 9223372036854775807)
