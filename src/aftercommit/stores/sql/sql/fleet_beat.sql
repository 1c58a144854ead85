-- Be heard. No row: the others have given the instance up.
UPDATE {instance_table} SET heartbeat_at = {now} WHERE id = :id
