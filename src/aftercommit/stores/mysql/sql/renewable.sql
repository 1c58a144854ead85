-- Which of these leases still stand. It never waits: a row that somebody has locked is being settled, and one who
-- waits for nobody is in no deadlock.
SELECT {table}.event_id, {table}.handler_id
FROM {held}
STRAIGHT_JOIN {table} FORCE INDEX ({index:event}) ON {fence}
FOR UPDATE /*!80000 OF {table} */ SKIP LOCKED
