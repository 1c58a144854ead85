-- One more delivery begins that may kill its process.
UPDATE {table}
SET abandoned = abandoned + 1
WHERE {fence}
