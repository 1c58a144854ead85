-- Lease the next rows that are due and free, or whose lease has passed, behind the floor; locked ones are passed over.
-- Said as exceptions, which the planner takes for rare: else, before there are statistics, it sorts all that is due.
-- By ctid, because these rows are locked where they are: one that moved meanwhile is left to the next claim.
-- When the next row falls due comes with the rows: whoever waits for them does not wait for a second answer.
-- Its time is a number, said once: drivers take longer to read a date, and would for each row.
-- The commit does not wait for the disk, unless it is somebody else's too: a lease need not outlive a crash of the database.
-- Whoever has lost one there settles nothing, and whoever takes the row over begins where the first one began.
WITH due AS MATERIALIZED (
  SELECT ctid AS place, locked_by
  FROM {table}
  WHERE {unfinished}
    AND available_at <= {now}
    AND (available_at, position) > (:floor_at, :floor_position)
    AND (locked_by IS NOT NULL AND lease_until > {now}) IS NOT TRUE
    AND (created_at > {now_minus:skip_recent}) IS NOT TRUE
  ORDER BY available_at, position
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
),
unhurried AS MATERIALIZED (
  SELECT CASE WHEN :is_alone THEN set_config('synchronous_commit', 'off', true) END,
    (extract(epoch FROM {now}) * 1000000)::bigint AS micros,
    (SELECT {until:min(available_at)} FROM {table} WHERE {unfinished} AND available_at > {now}) AS next_due
)
UPDATE {table} AS row
SET locked_by = :owner, locked_at = {now}, lease_until = {now_plus:lock_timeout},
    lease_epoch = row.lease_epoch + 1
FROM due, unhurried
WHERE row.ctid = due.place
RETURNING {claimed:row}, row.lease_epoch - 1, coalesce(due.locked_by <> :owner, false), unhurried.micros,
  unhurried.next_due
