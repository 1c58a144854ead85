-- Delete what is old enough, whatever its status, oldest first. Each part goes by an index that is there anyway.
DELETE FROM {table}
WHERE ctid = ANY (ARRAY(
  SELECT row
  FROM (
    (
      SELECT ctid AS row, created_at AS born_at
      FROM {table}
      WHERE status IN (0, 2)
      ORDER BY available_at, position
      LIMIT :limit::bigint
      FOR UPDATE SKIP LOCKED
    )
    UNION ALL
    (
      SELECT ctid, created_at
      FROM {table}
      WHERE status IN (1, 3) AND status = 1
      ORDER BY done_at
      LIMIT :limit::bigint
      FOR UPDATE SKIP LOCKED
    )
    UNION ALL
    (
      SELECT ctid, created_at
      FROM {table}
      WHERE status IN (1, 3) AND status = 3
      ORDER BY done_at
      LIMIT :limit::bigint
      FOR UPDATE SKIP LOCKED
    )
    ORDER BY born_at
    LIMIT :limit::bigint
  ) AS front
  WHERE born_at < {now} - :older_than::bigint * interval '1 microsecond'
))
