-- As if it had never come.
DELETE FROM {table}
WHERE consumer = :consumer AND message_id = :message_id
  AND names_size = DATALENGTH(:consumer) * 2048 + DATALENGTH(:message_id)
