-- The first unfinished row of each key, by one probe for each; a step without a position has ended its partition.
WITH RECURSIVE walk (number, position) AS (
  SELECT 0, (
    SELECT position FROM {table}
    WHERE status IN (0, 2)
      AND partition_no = json_extract(:partitions, '$[0]')
      AND coalesce(event_key, event_id) > :after_key
    ORDER BY coalesce(event_key, event_id), position
    LIMIT 1
  )
  UNION ALL
  SELECT walk.number + (walk.position IS NULL), (
    SELECT position FROM {table}
    WHERE status IN (0, 2)
      AND partition_no = json_extract(:partitions, '$[' || (walk.number + (walk.position IS NULL)) || ']')
      AND coalesce(event_key, event_id) > coalesce(last.event_key, last.event_id, '')
    ORDER BY coalesce(event_key, event_id), position
    LIMIT 1
  )
  FROM walk LEFT JOIN {table} AS last ON last.position = walk.position
  WHERE walk.number + (walk.position IS NULL) < json_array_length(:partitions)
),
head AS (
  SELECT row.partition_no, coalesce(row.event_key, row.event_id) AS order_key, row.position, row.available_at,
    CASE WHEN row.locked_by IS NOT NULL AND row.lease_until > {now} THEN row.lease_until END AS leased_until,
    CASE WHEN :blocks THEN (
      SELECT position FROM {table}
      WHERE status = 3
        AND partition_no = row.partition_no
        AND coalesce(event_key, event_id) = coalesce(row.event_key, row.event_id)
      ORDER BY position
      LIMIT 1
    ) END AS dead
  FROM walk CROSS JOIN {table} AS row ON row.position = walk.position
  LIMIT :limit
)
SELECT partition_no, order_key, coalesce(dead < position, 0),
  CASE WHEN :stops THEN leased_until ELSE (
    SELECT max(lease_until) FROM (
      SELECT locked_by, lease_until FROM {table}
      WHERE status IN (0, 2)
        AND partition_no = head.partition_no
        AND coalesce(event_key, event_id) = head.order_key
        AND position < coalesce(head.dead, 9223372036854775807)
      ORDER BY position
      LIMIT :reach
    ) WHERE locked_by IS NOT NULL AND lease_until > {now}
  ) END - {now},
  CASE WHEN :stops THEN available_at ELSE (
    SELECT min(available_at) FROM (
      SELECT available_at FROM {table}
      WHERE status IN (0, 2)
        AND partition_no = head.partition_no
        AND coalesce(event_key, event_id) = head.order_key
        AND position < coalesce(head.dead, 9223372036854775807)
      ORDER BY position
      LIMIT :reach
    )
  ) END - {now}
FROM head
