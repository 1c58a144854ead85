-- Everybody who has signed on, and for how many microseconds nothing was heard of them.
SELECT id, host, pid, started_at AT TIME ZONE 'UTC', (extract(epoch FROM {now} - heartbeat_at) * 1000000)::bigint, status
FROM {instance_table}
ORDER BY started_at, id
