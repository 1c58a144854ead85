-- Own partitions that are free and still as they were seen.
UPDATE {partition_table}
SET owner = :id, epoch = epoch + 1, expires_at = {now_plus:lasts}
FROM json_each(:seen) AS seen
WHERE partition_no = json_extract(seen.value, '$[0]') AND epoch = json_extract(seen.value, '$[1]')
  AND (owner IS NULL OR expires_at <= {now})
