-- Up to :limit records that are as old as that, the oldest first; others may purge at the same time.
DELETE FROM {table}
WHERE (consumer, message_id) IN (
  SELECT consumer, message_id FROM {table}
  WHERE received_at <= {now_minus:older_than} AND consumer <> ''
  ORDER BY received_at
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
)
