-- These dead rows are NEW again, with all their attempts, under a new epoch.
UPDATE {table}
SET {new_again}
WHERE status = 3 AND position IN (SELECT value FROM json_each(:positions))
