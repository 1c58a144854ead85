-- No more attempts. Changes nothing unless the lease still stands.
UPDATE {table}
SET status = 3, attempts = attempts + :counted, done_at = {now}, last_error = :error,
    abandoned = 0, locked_by = NULL, locked_at = NULL, lease_until = NULL
WHERE {fence}
