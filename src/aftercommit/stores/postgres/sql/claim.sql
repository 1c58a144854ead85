-- Lease the next rows that are due and free, or whose lease has passed, behind the floor; locked ones are passed over.
-- Said as exceptions, which the planner takes for rare: else, before there are statistics, it sorts all that is due.
-- By ctid, because these rows are locked where they are: one that moved meanwhile is left to the next claim.
-- The commit does not wait for the disk, unless it is somebody else's too: a lease need not outlive a crash of the database.
-- Whoever has lost one there settles nothing, and whoever takes the row over begins where the first one began.
WITH due AS MATERIALIZED (
  SELECT ctid AS place, locked_by
  FROM {table}
  WHERE status NOT IN (1, 3)
    AND available_at <= {now}
    AND (available_at, position) > (:floor_at::timestamptz, :floor_position::bigint)
    AND (locked_by IS NOT NULL AND lease_until > {now}) IS NOT TRUE
    AND (created_at > {now} - :skip_recent::bigint * interval '1 microsecond') IS NOT TRUE
  ORDER BY available_at, position
  LIMIT :limit::bigint
  FOR UPDATE SKIP LOCKED
),
unhurried AS MATERIALIZED (
  SELECT CASE WHEN :is_alone::boolean THEN set_config('synchronous_commit', 'off', true) END
)
UPDATE {table} AS row
SET locked_by = :owner::text, locked_at = {now}, lease_until = {now} + :lock_timeout::bigint * interval '1 microsecond',
    lease_epoch = row.lease_epoch + 1
FROM due, unhurried
WHERE row.ctid = due.place
RETURNING row.position, row.event_id, row.handler_id, row.event_type, row.aggregate_type, row.aggregate_id,
  row.tenant_id, row.event_key, row.payload, row.payload_bytes, row.headers, row.occurred_at AT TIME ZONE 'UTC',
  row.scheduled_at AT TIME ZONE 'UTC', row.attempts, row.abandoned, row.lease_epoch - 1,
  coalesce(due.locked_by <> :owner::text, false), row.created_at AT TIME ZONE 'UTC',
  row.available_at AT TIME ZONE 'UTC', row.content_type, row.payload_version, row.done_handlers,
  {now} AT TIME ZONE 'UTC'
