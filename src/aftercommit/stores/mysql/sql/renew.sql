-- Prolong leases from now on. Changes nothing of a row unless its lease still stands.
UPDATE {held}
STRAIGHT_JOIN {table} FORCE INDEX ({index:event}) ON {fence}
SET lease_until = {now} + INTERVAL :lock_timeout MICROSECOND
