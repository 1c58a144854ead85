-- Own partitions that are free and still as they were seen. What somebody has locked is passed over: they are faster.
UPDATE {partition_table}
SET owner = :id, epoch = {partition_table}.epoch + 1, expires_at = {now_plus:lasts}
FROM {partition_table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
INNER JOIN OPENJSON(CAST(:seen AS nvarchar(max))) WITH (number smallint '$[0]', epoch int '$[1]') AS seen
  ON {partition_table}.partition_no = seen.number AND {partition_table}.epoch = seen.epoch
WHERE owner IS NULL OR expires_at <= {now}
