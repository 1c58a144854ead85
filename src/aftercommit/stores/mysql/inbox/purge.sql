-- Up to :limit records that are as old as that, the oldest first. The mark of the table has no consumer, and stays.
DELETE FROM {table}
WHERE received_at <= {now_minus:older_than} AND consumer <> ''
ORDER BY received_at
LIMIT :limit
