-- Prolong leases from now on. Changes nothing of a row unless its lease still stands.
UPDATE {table}
SET lease_until = {now} + :lock_timeout
FROM {held}
WHERE {fence}
