-- What the run of each key may be: its unbroken prefix of rows that are due and free, whatever is committed of it.
-- Where rows that are not due are passed over they are listed too, up to the last row of the run, unless anything of the
-- key is leased. Rows that others have locked are here, so that a run ends at them when it is locked itself.
DECLARE @now datetime2(6) = {now}, @run int = :run, @reach int = :reach, @stops bit = :stops, @blocks bit = :blocks;
WITH asked AS (
  SELECT CAST([key] AS int) AS number, CAST(JSON_VALUE([value], '$[0]') AS smallint) AS partition_no,
    CAST(CAST(JSON_VALUE([value], '$[1]') AS nvarchar(510)) AS varbinary(1020)) AS order_key
  FROM OPENJSON(CAST(:asked AS nvarchar(max)))
),
listed AS (
  SELECT asked.number, front.position, front.is_due, front.lease_epoch,
    MIN(CASE WHEN front.is_due = 1 AND front.is_leased = 0 THEN 1 ELSE 0 END)
      OVER (PARTITION BY asked.number ORDER BY front.position ROWS UNBOUNDED PRECEDING) AS is_unbroken,
    MAX(front.is_leased) OVER (PARTITION BY asked.number) AS is_held,
    SUM(front.is_due)
      OVER (PARTITION BY asked.number ORDER BY front.position ROWS UNBOUNDED PRECEDING) - front.is_due AS due_before,
    SUM(front.is_due) OVER (PARTITION BY asked.number) AS due
  FROM asked
  OUTER APPLY (
    SELECT TOP (1) position
    FROM {table} WITH (READUNCOMMITTED, INDEX({index:blocking}))
    WHERE @blocks = 1 AND status = 3 AND partition_no = asked.partition_no AND order_key = asked.order_key
    ORDER BY position
  ) AS dead
  CROSS APPLY (
    SELECT TOP (CASE WHEN @stops = 1 THEN @run ELSE @reach END)
      position, lease_epoch, CASE WHEN available_at <= @now THEN 1 ELSE 0 END AS is_due,
      CASE WHEN locked_by IS NOT NULL AND lease_until > @now THEN 1 ELSE 0 END AS is_leased
    FROM {table} WITH (READUNCOMMITTED, INDEX({index:order}))
    WHERE status IN (0, 2)
      AND partition_no = asked.partition_no
      AND order_key = asked.order_key
      AND position < COALESCE(dead.position, 9223372036854775807)
    ORDER BY position
  ) AS front
)
SELECT number, position, is_due, lease_epoch
FROM listed
WHERE (@stops = 1 AND is_unbroken = 1) OR (@stops = 0 AND is_held = 0 AND due_before < @run AND due_before < due)
ORDER BY number, position
