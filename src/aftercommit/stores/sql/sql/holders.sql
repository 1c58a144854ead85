-- Who holds leases: how many, how many over long ago, since when the first is over, and the oldest held.
SELECT locked_by, count(*), sum(CASE WHEN lease_until < {now_minus:older_than} THEN 1 ELSE 0 END),
       max({since:lease_until}), max({since:locked_at})
FROM {table_by:pending}
WHERE {unfinished} AND locked_by IS NOT NULL
GROUP BY locked_by
