-- Which of these keys have unfinished rows, and the first position of each: one probe for each key.
SELECT asked.number, least(unfinished.position, dead.position)
FROM unnest(:partitions::text::smallint[], :keys::text::text[]) WITH ORDINALITY AS asked (partition_no, order_key, number)
LEFT JOIN LATERAL (
  SELECT position FROM {table}
  WHERE {unfinished} AND partition_no = asked.partition_no AND coalesce(event_key, event_id) = asked.order_key
  ORDER BY position
  LIMIT 1
) AS unfinished ON true
LEFT JOIN LATERAL (
  SELECT position FROM {table}
  WHERE status >= 3 AND partition_no = asked.partition_no AND coalesce(event_key, event_id) = asked.order_key
  ORDER BY position
  LIMIT 1
) AS dead ON :blocks
WHERE unfinished.position IS NOT NULL OR dead.position IS NOT NULL
