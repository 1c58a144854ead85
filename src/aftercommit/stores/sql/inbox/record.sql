-- The message was consumed, or is just now. Changes no row when it was before; waits for whoever is at it.
INSERT INTO {table} (consumer, message_id, received_at)
VALUES (:consumer, :message_id, {now})
ON CONFLICT DO NOTHING
