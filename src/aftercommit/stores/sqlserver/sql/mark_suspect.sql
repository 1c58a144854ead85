-- One more delivery begins that may kill its process. Changes nothing unless the lease still stands.
UPDATE {table}
SET abandoned = abandoned + 1
FROM {table} WITH (ROWLOCK)
INNER JOIN {held} ON {fence} AND ids_size = held.size
