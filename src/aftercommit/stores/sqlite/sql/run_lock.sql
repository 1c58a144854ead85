-- The rows of runs. The write lock is held since before they were listed, so that none can have changed.
SELECT {claimed}, lease_epoch, coalesce(locked_by <> :owner, 0), {now}
FROM json_each(:candidates) AS candidate
CROSS JOIN {table} ON position = json_extract(candidate.value, '$[0]')
