-- One more delivery begins that may kill its process. Changes nothing unless the lease still stands.
UPDATE {table}
SET abandoned = abandoned + 1
FROM {held:keys}
WHERE {fence}
