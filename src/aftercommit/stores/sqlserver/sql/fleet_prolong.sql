-- Own for longer what is owned, even after its time as long as nobody has taken it.
DECLARE @lasts bigint = :lasts;
UPDATE {partition_table}
SET expires_at = DATEADD(day, @lasts / 1000000 / 86400, DATEADD(second, @lasts / 1000000 % 86400,
  DATEADD(microsecond, @lasts % 1000000, {now})))
WHERE owner = :id
