-- Transactions that have been open for long, oldest first: the session, what it does, and for how many microseconds.
-- InnoDB keeps old versions of rows for all of them, which every claim has to step over.
SELECT CONCAT('the session ', trx_mysql_thread_id), trx_state,
       TIMESTAMPDIFF(MICROSECOND, trx_started, NOW(6)), CONCAT('KILL ', trx_mysql_thread_id)
FROM information_schema.innodb_trx
WHERE trx_mysql_thread_id <> CONNECTION_ID() AND trx_started < NOW(6) - INTERVAL :older_than MICROSECOND
ORDER BY trx_started
