-- Delivered, and not to be kept. Changes nothing unless the lease still stands.
DELETE FROM {table}
WHERE {fence}
