-- Delete rows of one terminal status that ended long enough ago, oldest first; by their birth if nobody said when.
DECLARE @before datetime2(6) = {now_minus:older_than};
WITH old AS (
  SELECT event_id, handler_id
  FROM {table} WITH (ROWLOCK)
  WHERE position IN (
    SELECT TOP (:limit) position
    FROM (
      SELECT position, done_at AS ended_at
      FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
      WHERE status IN (1, 3) AND status = :status AND done_at <= @before
      UNION ALL
      SELECT position, created_at
      FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
      WHERE status IN (1, 3) AND status = :status AND done_at IS NULL AND created_at <= @before
    ) AS ended
    ORDER BY ended_at
  )
)
DELETE FROM old
OUTPUT deleted.event_id, deleted.handler_id
