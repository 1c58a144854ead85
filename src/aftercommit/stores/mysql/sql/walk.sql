-- The next rows that are not finished behind where a walk stands, key by key, by the index alone.
-- Of many partitions MySQL overrates the rows by far, and would read the whole index instead, if that had all it needs.
SELECT partition_no, order_key, position
FROM {table} FORCE INDEX ({index:order})
WHERE is_dead = 0 AND ((partition_no = :first AND order_key > :after_key) OR partition_no IN :others)
  /*!80000 AND lease_epoch >= 0 */
ORDER BY partition_no, is_dead, order_key, position
LIMIT :rows
