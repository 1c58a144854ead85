-- The run of each key: its unbroken prefix of rows that are due and free, with those that it may pass over.
WITH asked AS MATERIALIZED (
  SELECT key AS number, json_extract(value, '$[0]') AS partition_no, json_extract(value, '$[1]') AS order_key
  FROM json_each(:asked)
),
alive AS MATERIALIZED (
  SELECT number, partition_no, order_key, coalesce(CASE WHEN :blocks THEN (
    SELECT position FROM {table}
    WHERE status = 3 AND partition_no = asked.partition_no AND coalesce(event_key, event_id) = asked.order_key
    ORDER BY position
    LIMIT 1
  ) END, 9223372036854775807) AS until
  FROM asked
),
near AS MATERIALIZED (
  SELECT number, partition_no, order_key, coalesce((
    SELECT position FROM {table}
    WHERE status IN (0, 2)
      AND partition_no = alive.partition_no
      AND coalesce(event_key, event_id) = alive.order_key
      AND position < alive.until
    ORDER BY position
    LIMIT 1 OFFSET CASE WHEN :stops THEN :run ELSE :reach END
  ), until) AS until
  FROM alive
),
unfinished AS MATERIALIZED (
  SELECT number, position, lease_epoch, available_at <= {now} AS is_due,
    locked_by IS NOT NULL AND coalesce(lease_until > {now}, 0) AS is_leased
  FROM near CROSS JOIN {table} ON status IN (0, 2)
    AND {table}.partition_no = near.partition_no
    AND coalesce(event_key, event_id) = near.order_key
    AND position < near.until
)
SELECT number, position, is_due, lease_epoch
FROM (
  SELECT number, position, is_due, lease_epoch,
    min(is_due AND NOT is_leased) OVER so_far AS is_unbroken,
    max(is_leased) OVER whole AS is_held,
    sum(is_due) OVER so_far - is_due AS due_before,
    sum(is_due) OVER whole AS due
  FROM unfinished
  WINDOW so_far AS (PARTITION BY number ORDER BY position), whole AS (PARTITION BY number)
)
WHERE CASE WHEN :stops THEN is_unbroken ELSE NOT is_held AND due_before < min(:run, due) END
ORDER BY number, position
