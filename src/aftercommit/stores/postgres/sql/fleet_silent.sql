-- Others of whom nothing was heard for longer than that.
SELECT id
FROM {instance_table}
WHERE heartbeat_at < {now} - :silent_for::bigint * interval '1 microsecond' AND id <> :but
ORDER BY id
