-- Remove a member, unless it was heard meanwhile.
DELETE FROM {instance_table} WHERE id = :id AND heartbeat_at < {now_minus:silent_for}
