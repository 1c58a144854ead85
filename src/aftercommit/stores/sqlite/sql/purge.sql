-- Delete rows of one terminal status that ended long enough ago, oldest first.
DELETE FROM {table}
WHERE position IN (
  SELECT position
  FROM {table}
  WHERE status IN (1, 3) AND status = :status AND done_at < {now} - :older_than
  ORDER BY done_at
  LIMIT :limit
)
