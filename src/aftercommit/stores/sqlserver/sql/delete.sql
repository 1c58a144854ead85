-- Delivered, and not to be kept. Changes nothing of a row unless its lease still stands.
DELETE FROM {table} WITH (ROWLOCK)
OUTPUT deleted.event_id, deleted.handler_id
WHERE EXISTS (SELECT 1 FROM {held} WHERE {fence} AND ids_size = held.size)
