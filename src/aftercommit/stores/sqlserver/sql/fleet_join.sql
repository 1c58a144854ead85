-- Sign on; who is there already is heard again.
UPDATE {instance_table} SET heartbeat_at = {now}, status = 0 WHERE id = :id;
INSERT INTO {instance_table} (id, host, pid, started_at, heartbeat_at)
SELECT :id, :host, :pid, {now}, {now}
WHERE NOT EXISTS (SELECT 1 FROM {instance_table} WHERE id = :id)
