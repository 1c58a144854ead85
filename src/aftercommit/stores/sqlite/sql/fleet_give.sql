-- Own partitions no more, where owner and epoch still stand.
UPDATE {partition_table}
SET owner = NULL, epoch = epoch + 1, expires_at = {now}
FROM json_each(:seen) AS seen
WHERE partition_no = json_extract(seen.value, '$[0]') AND epoch = json_extract(seen.value, '$[1]') AND owner = :id
