-- Failed and counted; due again after a delay. Changes nothing unless the lease still stands.
UPDATE {table}
SET status = 2, attempts = attempts + 1, available_at = {now} + :delay, last_error = :error,
    abandoned = 0, locked_by = NULL, locked_at = NULL, lease_until = NULL
WHERE {fence}
