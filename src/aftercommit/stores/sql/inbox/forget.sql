-- As if it had never come.
DELETE FROM {table} WHERE consumer = :consumer AND message_id = :message_id
