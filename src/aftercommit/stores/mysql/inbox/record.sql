-- The message was consumed, or is just now. Changes no row when it was before; waits for whoever is at it. It is not ON
-- DUPLICATE KEY UPDATE: connections that count the rows that are found would count that one.
INSERT IGNORE INTO {table} (consumer, message_id, received_at) VALUES (:consumer, :message_id, {now})
