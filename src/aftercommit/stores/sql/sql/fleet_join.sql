-- Sign on; who is there already is heard again.
INSERT INTO {instance_table} (id, host, pid, started_at, heartbeat_at)
VALUES (:id, :host, :pid, {now}, {now})
ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, status = 0
