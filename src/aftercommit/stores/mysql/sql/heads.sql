-- What holds back the heads of keys: a dead row before them, a lease, or that they are not due; for how long.
-- One that was finished meanwhile is told as if it could be claimed, and the claim will see.
SELECT head.partition_no, head.order_key,
       CASE WHEN :blocks THEN (
         SELECT position FROM {table} FORCE INDEX ({index:order})
         WHERE partition_no = head.partition_no AND is_dead = 1 AND order_key = head.order_key
         ORDER BY position
         LIMIT 1
       ) < head.position END,
       CASE WHEN locked_by IS NOT NULL AND lease_until > {now} THEN {until:lease_until} END,
       COALESCE({until:available_at}, 0)
FROM JSON_TABLE(:heads, '$[*]' COLUMNS (
  number FOR ORDINALITY, partition_no SMALLINT PATH '$[0]',
  order_key VARCHAR(255) CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */ PATH '$[1]',
  position BIGINT PATH '$[2]'
)) AS head
LEFT JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = head.position
ORDER BY head.number
