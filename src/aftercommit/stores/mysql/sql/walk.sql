-- The next rows that are not finished behind where a walk stands, key by key, by the index alone.
SELECT partition_no, order_key, position
FROM {table} FORCE INDEX ({index:order})
WHERE is_dead = 0 AND ((partition_no = :first AND order_key > :after_key) OR partition_no IN :others)
ORDER BY partition_no, is_dead, order_key, position
LIMIT :rows
