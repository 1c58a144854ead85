-- Lease the run of each key: its unbroken prefix of rows that are due and free. They are listed as one snapshot has them,
-- then locked where they are; one that has changed since has moved, and it ends the run, as does one that somebody else
-- has locked: nothing behind it is leased. A lock may fall on the newer version of a row, so the places are compared.
-- Where rows that are not due are passed over, a run is whole or nothing: these are locked too, and get a new epoch. So
-- they move, and another claimer for whom one of them has fallen due since leases nothing beside us.
-- What is leased is said as a number, which the planner takes for rare: else it reads all of a table that is not large.
-- As in `claim`, the commit does not wait for the disk.
WITH listed AS MATERIALIZED (
  SELECT asked.number, first.place, first.position, first.is_due
  FROM unnest(:partitions::text::smallint[], :keys::text::text[]) WITH ORDINALITY AS asked (partition_no, order_key, number)
  LEFT JOIN LATERAL (
    SELECT position
    FROM {table}
    WHERE status >= 3 AND partition_no = asked.partition_no AND coalesce(event_key, event_id) = asked.order_key
    ORDER BY position
    LIMIT 1
  ) AS dead ON :blocks
  CROSS JOIN LATERAL (
    SELECT place, position, is_due,
      bool_and(is_due AND NOT is_leased) OVER so_far AS is_unbroken,
      bool_or(is_leased) OVER () AS is_held,
      count(*) FILTER (WHERE is_due) OVER so_far - is_due::integer AS due_before,
      count(*) FILTER (WHERE is_due) OVER () AS due
    FROM (
      SELECT ctid AS place, position, available_at <= {now} AS is_due,
        coalesce(locked_by IS NOT NULL AND lease_until > {now}, false) AS is_leased
      FROM {table}
      WHERE {unfinished}
        AND partition_no = asked.partition_no
        AND coalesce(event_key, event_id) = asked.order_key
        AND position < coalesce(dead.position, 9223372036854775807)
      ORDER BY position
      LIMIT CASE WHEN :stops THEN :run ELSE :reach END
    ) AS unfinished
    WINDOW so_far AS (ORDER BY position)
  ) AS first
  WHERE CASE WHEN :stops THEN is_unbroken ELSE NOT is_held AND due_before < least(:run, due) END
),
locked AS MATERIALIZED (
  SELECT row.place, row.locked_by, listed.is_due,
    bool_and(row.place IS NOT NULL) OVER (
      PARTITION BY listed.number ORDER BY CASE WHEN :stops THEN listed.position END
    ) AS is_unbroken
  FROM listed
  LEFT JOIN LATERAL (
    SELECT ctid AS place, locked_by
    FROM {table}
    WHERE ctid = listed.place
    FOR UPDATE SKIP LOCKED
  ) AS row ON row.place = listed.place
),
unhurried AS MATERIALIZED (
  SELECT CASE WHEN :is_alone THEN set_config('synchronous_commit', 'off', true) END
),
passed_over AS (
  UPDATE {table} AS row
  SET lease_epoch = row.lease_epoch + 1
  FROM locked
  WHERE row.ctid = locked.place AND (locked.is_unbroken AND NOT locked.is_due)::integer = 1 AND NOT :stops
)
UPDATE {table} AS row
SET locked_by = :owner, locked_at = {now}, lease_until = {now_plus:lock_timeout},
    lease_epoch = row.lease_epoch + 1
FROM locked, unhurried
WHERE row.ctid = locked.place AND (locked.is_unbroken AND locked.is_due)::integer = 1
RETURNING {claimed:row}, row.lease_epoch - 1, coalesce(locked.locked_by <> :owner, false), {now} AT TIME ZONE 'UTC'
