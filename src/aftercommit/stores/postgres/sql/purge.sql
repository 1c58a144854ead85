-- Delete rows of one terminal status that ended long enough ago, oldest first; by their birth if nobody said when.
WITH dated AS MATERIALIZED (
  SELECT ctid AS row, done_at AS ended_at
  FROM {table}
  WHERE status IN (1, 3) AND status = :status::smallint
    AND done_at < {now} - :older_than::bigint * interval '1 microsecond'
  ORDER BY done_at
  LIMIT :limit::bigint
  FOR UPDATE SKIP LOCKED
), undated AS MATERIALIZED (
  SELECT ctid AS row, created_at AS ended_at
  FROM {table}
  WHERE status IN (1, 3) AND status = :status::smallint AND done_at IS NULL
    AND created_at < {now} - :older_than::bigint * interval '1 microsecond'
  LIMIT :limit::bigint
  FOR UPDATE SKIP LOCKED
)
DELETE FROM {table}
WHERE ctid = ANY (ARRAY(
  SELECT row FROM (TABLE dated UNION ALL TABLE undated) AS old ORDER BY ended_at LIMIT :limit::bigint
))
