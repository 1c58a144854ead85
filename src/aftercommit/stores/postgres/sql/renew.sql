-- Prolong leases from now on. A row that somebody has locked is being settled, and is passed over.
WITH standing AS MATERIALIZED (
  SELECT {table}.event_id, {table}.handler_id
  FROM {table}, {held}
  WHERE {fence}
  FOR UPDATE OF {table_name} SKIP LOCKED
)
UPDATE {table}
SET lease_until = {now_plus:lock_timeout}
FROM standing
WHERE {table}.event_id = standing.event_id AND {table}.handler_id = standing.handler_id
RETURNING {table}.event_id, {table}.handler_id
