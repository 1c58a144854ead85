-- The first unfinished row of each key, partition by partition, by one probe for each key; the walk stops at the limit.
SELECT asked.partition_no, head.order_key,
  coalesce(dead.position < head.position, false),
  {until:seen.leased_until},
  {until:seen.due_at}
FROM unnest(:partitions::text::smallint[]) WITH ORDINALITY AS asked (partition_no, number)
CROSS JOIN LATERAL (
  WITH RECURSIVE walk AS (
    (
      SELECT coalesce(event_key, event_id) AS order_key, position, available_at, locked_by, lease_until
      FROM {table}
      WHERE {unfinished}
        AND partition_no = asked.partition_no
        AND coalesce(event_key, event_id) > CASE WHEN asked.number = 1 THEN :after_key ELSE '' END
      ORDER BY coalesce(event_key, event_id), position
      LIMIT 1
    )
    UNION ALL
    SELECT next.*
    FROM walk
    CROSS JOIN LATERAL (
      SELECT coalesce(event_key, event_id), position, available_at, locked_by, lease_until
      FROM {table}
      WHERE {unfinished}
        AND partition_no = asked.partition_no
        AND coalesce(event_key, event_id) > walk.order_key
      ORDER BY coalesce(event_key, event_id), position
      LIMIT 1
    ) AS next
  )
  SELECT * FROM walk
) AS head
LEFT JOIN LATERAL (
  SELECT position
  FROM {table}
  WHERE status >= 3 AND partition_no = asked.partition_no AND coalesce(event_key, event_id) = head.order_key
  ORDER BY position
  LIMIT 1
) AS dead ON :blocks
CROSS JOIN LATERAL (
  SELECT CASE WHEN head.locked_by IS NOT NULL AND head.lease_until > {now} THEN head.lease_until END AS leased_until,
    head.available_at AS due_at
  WHERE :stops
  UNION ALL
  SELECT max(lease_until) FILTER (WHERE locked_by IS NOT NULL AND lease_until > {now}), min(available_at)
  FROM (
    SELECT locked_by, lease_until, available_at
    FROM {table}
    WHERE {unfinished} AND partition_no = asked.partition_no AND coalesce(event_key, event_id) = head.order_key
      AND position < coalesce(dead.position, 9223372036854775807)
    ORDER BY position
    LIMIT :reach
  ) AS first
  HAVING NOT :stops
) AS seen
LIMIT :limit
