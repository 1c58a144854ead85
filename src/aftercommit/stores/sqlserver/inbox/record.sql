-- The message was consumed, or is just now. Changes no row when it was before; waits for whoever is at it: the look locks
-- the place of a row that is not there. No collation tells blanks at the end, so the sizes of the names go beside them.
INSERT INTO {table} (consumer, message_id, received_at)
SELECT :consumer, :message_id, {now}
WHERE NOT EXISTS (
  SELECT 1 FROM {table} WITH (UPDLOCK, HOLDLOCK)
  WHERE consumer = :consumer AND message_id = :message_id
    AND names_size = DATALENGTH(:consumer) * 2048 + DATALENGTH(:message_id)
)
