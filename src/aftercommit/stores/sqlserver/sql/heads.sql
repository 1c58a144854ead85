-- The first unfinished row of each key, partition by partition, by one probe for each key; the walk stops at the limit.
DECLARE @now datetime2(6) = {now}, @limit int = :limit, @reach int = :reach, @stops bit = :stops, @blocks bit = :blocks,
  @number int = 0, @key varbinary(1020) = CAST(CAST(:after_key AS nvarchar(510)) AS varbinary(1020)),
  @start varbinary(1020) = CAST(N'' AS varbinary(1020)), @count int = 0, @found int = 1;
DECLARE @asked TABLE (number int NOT NULL PRIMARY KEY, partition_no smallint NOT NULL);
DECLARE @heads TABLE (
  place int NOT NULL IDENTITY(1, 1) PRIMARY KEY, number int NOT NULL, partition_no smallint NOT NULL,
  order_key varbinary(1020) NOT NULL, position bigint NOT NULL
);
INSERT INTO @asked (number, partition_no)
SELECT CAST([key] AS int), CAST([value] AS smallint)
FROM OPENJSON(CAST(:partitions AS nvarchar(max)));
WHILE @found > 0 AND @count < @limit
BEGIN
  INSERT INTO @heads (number, partition_no, order_key, position)
  SELECT TOP (1) asked.number, asked.partition_no, following.order_key, following.position
  FROM @asked AS asked
  CROSS APPLY (
    SELECT TOP (1) order_key, position
    FROM {table} WITH (READPAST, READCOMMITTEDLOCK, INDEX({index:order}))
    WHERE status IN (0, 2)
      AND partition_no = asked.partition_no
      AND order_key > CASE WHEN asked.number = @number THEN @key ELSE @start END
    ORDER BY order_key, position
  ) AS following
  WHERE asked.number >= @number
  ORDER BY asked.number;
  SET @found = @@ROWCOUNT;
  SET @count = @count + 1;
  SELECT TOP (1) @number = number, @key = order_key FROM @heads ORDER BY place DESC;
END;
SELECT head.partition_no, CAST(head.order_key AS nvarchar(510)),
  CASE WHEN dead.position < head.position THEN 1 ELSE 0 END,
  DATEDIFF_BIG(microsecond, @now, seen.leased_until),
  COALESCE(DATEDIFF_BIG(microsecond, @now, seen.due_at), 0)
FROM @heads AS head
OUTER APPLY (
  SELECT TOP (1) position
  FROM {table} WITH (READPAST, READCOMMITTEDLOCK, INDEX({index:blocking}))
  WHERE @blocks = 1 AND status = 3 AND partition_no = head.partition_no AND order_key = head.order_key
  ORDER BY position
) AS dead
CROSS APPLY (
  SELECT MAX(CASE WHEN locked_by IS NOT NULL AND lease_until > @now THEN lease_until END) AS leased_until,
    MIN(available_at) AS due_at
  FROM (
    SELECT TOP (CASE WHEN @stops = 1 THEN 1 ELSE @reach END) locked_by, lease_until, available_at
    FROM {table} WITH (READPAST, READCOMMITTEDLOCK, INDEX({index:order}))
    WHERE status IN (0, 2)
      AND partition_no = head.partition_no
      AND order_key = head.order_key
      AND position < COALESCE(dead.position, 9223372036854775807)
    ORDER BY position
  ) AS front
) AS seen
ORDER BY head.place
