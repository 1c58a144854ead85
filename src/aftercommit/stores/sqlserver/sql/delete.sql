-- Delivered, and not to be kept. Changes nothing of a row unless its lease still stands.
WITH standing AS (
  SELECT event_id, handler_id
  FROM {table} WITH (ROWLOCK)
  WHERE EXISTS (SELECT 1 FROM {held} WHERE {fence})
)
DELETE FROM standing
OUTPUT deleted.event_id, deleted.handler_id
