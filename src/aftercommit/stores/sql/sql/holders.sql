-- Who holds leases on unfinished rows: how many, how many of them were over long ago, and in microseconds since when
-- the first is over and since when the oldest is held.
SELECT locked_by, count(*), sum(CASE WHEN lease_until < {now_minus:older_than} THEN 1 ELSE 0 END),
       max({since:lease_until}), max({since:locked_at})
FROM {table}
WHERE {unfinished} AND locked_by IS NOT NULL
GROUP BY locked_by
