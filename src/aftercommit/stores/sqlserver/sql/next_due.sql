-- How many microseconds until the next row falls due.
DECLARE @now datetime2(6) = {now};
SELECT DATEDIFF_BIG(microsecond, @now, MIN(available_at))
FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
WHERE status IN (0, 2) AND available_at > @now
