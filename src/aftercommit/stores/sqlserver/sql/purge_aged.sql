-- Delete from the front of the table what is old enough, whatever its status.
WITH old AS (
  SELECT event_id, handler_id
  FROM {table} WITH (ROWLOCK)
  WHERE position IN (
    SELECT position
    FROM (
      SELECT TOP (:limit) position, created_at
      FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
      ORDER BY position
    ) AS front
    WHERE created_at <= {now_minus:older_than}
  )
)
DELETE FROM old
OUTPUT deleted.event_id, deleted.handler_id
