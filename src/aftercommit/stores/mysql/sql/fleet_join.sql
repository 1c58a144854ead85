-- Sign on; who is there already is heard again.
INSERT INTO {instance_table} (id, host, pid, started_at, heartbeat_at) VALUES (:id, :host, :pid, {now}, {now})
ON DUPLICATE KEY UPDATE heartbeat_at = {now}, status = 0
