-- Of the first rows of one key, those before its first dead row if that blocks: how long the last lease lasts, and when
-- the first row is due.
(SELECT :number, MAX(CASE WHEN locked_by IS NOT NULL AND lease_until > {now}
                          THEN TIMESTAMPDIFF(MICROSECOND, {now}, lease_until) END),
        MIN(TIMESTAMPDIFF(MICROSECOND, {now}, available_at))
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
 ), 9223372036854775807))
