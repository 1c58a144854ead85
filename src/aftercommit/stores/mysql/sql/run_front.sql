-- The first rows of one key that are not done, as one snapshot has them, and where its first dead row is.
SELECT :number, position, available_at <= {now}, locked_by IS NOT NULL AND lease_until > {now}, lease_epoch, (
  SELECT position FROM {table} FORCE INDEX ({index:order})
  WHERE partition_no = :partition AND is_dead = 1 AND order_key = :key
  ORDER BY position
  LIMIT 1
)
FROM {table} FORCE INDEX ({index:order})
WHERE partition_no = :partition AND is_dead = 0 AND order_key = :key
ORDER BY position
LIMIT :rows
