-- How many microseconds until the next row falls due.
SELECT TIMESTAMPDIFF(MICROSECOND, {now}, MIN(due))
FROM (
  (SELECT available_at AS due FROM {table} FORCE INDEX ({index:pending})
   WHERE status = 0 AND available_at > {now} ORDER BY available_at LIMIT 1)
  UNION ALL
  (SELECT available_at AS due FROM {table} FORCE INDEX ({index:pending})
   WHERE status = 2 AND available_at > {now} ORDER BY available_at LIMIT 1)
) AS soonest
