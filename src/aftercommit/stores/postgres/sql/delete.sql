-- Delivered, and not to be kept. Changes nothing of a row unless its lease still stands.
DELETE FROM {table}
USING {held}
WHERE {fence}
RETURNING {table}.event_id, {table}.handler_id
