-- These dead rows are NEW again, with all their attempts, under a new epoch.
UPDATE {table}
SET {new_again}
WHERE position IN :positions AND status = 3
