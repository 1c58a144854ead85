-- One more delivery begins that may kill its process. Changes nothing unless the lease still stands.
UPDATE {held}
STRAIGHT_JOIN {table} FORCE INDEX ({index:event}) ON {fence}
SET abandoned = abandoned + 1
