-- Delete rows of one terminal status that ended long enough ago, oldest first; by their birth if nobody said when.
DELETE FROM {table}
WHERE ctid = ANY (ARRAY(
  SELECT row
  FROM (
    (
      SELECT ctid AS row, done_at AS ended_at
      FROM {table}
      WHERE status IN (1, 3) AND status = :status::smallint
        AND done_at < {now} - :older_than::bigint * interval '1 microsecond'
      ORDER BY done_at
      LIMIT :limit::bigint
      FOR UPDATE SKIP LOCKED
    )
    UNION ALL
    (
      SELECT ctid, created_at
      FROM {table}
      WHERE status IN (1, 3) AND status = :status::smallint AND done_at IS NULL
        AND created_at < {now} - :older_than::bigint * interval '1 microsecond'
      LIMIT :limit::bigint
      FOR UPDATE SKIP LOCKED
    )
    ORDER BY ended_at
    LIMIT :limit::bigint
  ) AS old
))
