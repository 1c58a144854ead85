-- Whether this consumer has had the message.
SELECT 1 FROM {table} WHERE consumer = :consumer AND message_id = :message_id
