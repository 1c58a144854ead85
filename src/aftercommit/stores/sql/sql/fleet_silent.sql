-- Others of whom nothing was heard for longer than that.
SELECT id FROM {instance_table} WHERE heartbeat_at < {now_minus:silent_for} AND id <> :but ORDER BY id
