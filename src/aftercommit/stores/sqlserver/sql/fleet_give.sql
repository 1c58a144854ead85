-- Own partitions no more, where owner and epoch still stand.
UPDATE {partition_table}
SET owner = NULL, epoch = {partition_table}.epoch + 1, expires_at = {now}
FROM {partition_table} WITH (ROWLOCK)
INNER JOIN OPENJSON(CAST(:seen AS nvarchar(max))) WITH (number smallint '$[0]', epoch int '$[1]') AS seen
  ON {partition_table}.partition_no = seen.number AND {partition_table}.epoch = seen.epoch
WHERE owner = :id
