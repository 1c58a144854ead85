-- Delete from the front of the table what is old enough, whatever its status.
DELETE FROM {table} WITH (ROWLOCK)
WHERE position IN (
  SELECT position
  FROM (
    SELECT TOP (:limit) position, created_at
    FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ORDER BY position
  ) AS front
  WHERE created_at < {now_minus:older_than}
)
