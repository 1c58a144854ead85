-- Everybody who has signed on, and for how many microseconds nothing was heard of them.
SELECT id, host, pid, started_at, DATEDIFF_BIG(microsecond, heartbeat_at, {now}), status
FROM {instance_table}
ORDER BY started_at, id
