-- Prolong leases from now on. Changes nothing of a row unless its lease still stands.
UPDATE {held_rows}
SET lease_until = {now_plus:lock_timeout}
{if_held}
