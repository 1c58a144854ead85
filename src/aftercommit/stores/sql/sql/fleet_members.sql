-- Everybody who has signed on, and for how many microseconds nothing was heard of them.
SELECT id, host, pid, {read:started_at}, {since:heartbeat_at}, status
FROM {instance_table}
ORDER BY started_at, id
