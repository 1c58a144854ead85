-- Of these keys those of which something is unfinished, or dead where that blocks. An earlier statement has locked them,
-- and this one sees all that was committed before that. Where a transaction has one snapshot, which may be older than the
-- locks, nobody can tell, and all are.
SELECT asked.order_key
FROM unnest(:partitions::text::smallint[], :keys::text::text[]) AS asked (partition_no, order_key)
WHERE current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
  OR (
    SELECT true
    FROM {table}
    WHERE {unfinished} AND partition_no = asked.partition_no AND coalesce(event_key, event_id) = asked.order_key
    ORDER BY position
    LIMIT 1
  )
  OR :blocks AND (
    SELECT true
    FROM {table}
    WHERE {is_dead} AND partition_no = asked.partition_no AND coalesce(event_key, event_id) = asked.order_key
    ORDER BY position
    LIMIT 1
  )
