-- Delivered, and not to be kept. Changes nothing of a row unless its lease still stands.
DELETE FROM {table}
WHERE {fence}
