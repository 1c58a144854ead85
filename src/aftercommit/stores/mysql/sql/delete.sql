-- Delivered, and not to be kept. Changes nothing of a row unless its lease still stands.
DELETE {table}
FROM {held}
STRAIGHT_JOIN {table} FORCE INDEX ({index:event}) ON {fence}
