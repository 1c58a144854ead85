-- Of these keys those of which something is unfinished, or dead where that blocks.
SELECT json_extract(asked.value, '$[1]')
FROM json_each(:asked) AS asked
WHERE EXISTS (
  SELECT 1 FROM {table}
  WHERE status IN (0, 2)
    AND partition_no = json_extract(asked.value, '$[0]')
    AND coalesce(event_key, event_id) = json_extract(asked.value, '$[1]')
) OR (:blocks AND EXISTS (
  SELECT 1 FROM {table}
  WHERE status = 3
    AND partition_no = json_extract(asked.value, '$[0]')
    AND coalesce(event_key, event_id) = json_extract(asked.value, '$[1]')
))
