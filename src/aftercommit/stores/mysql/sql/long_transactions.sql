-- Transactions that have been open for long, oldest first: who, how, for how long, and what ends it.
SELECT CONCAT('the session ', trx_mysql_thread_id), trx_state,
       TIMESTAMPDIFF(MICROSECOND, trx_started, NOW(6)), CONCAT('KILL ', trx_mysql_thread_id)
FROM information_schema.innodb_trx
WHERE trx_mysql_thread_id <> CONNECTION_ID() AND trx_started < NOW(6) - INTERVAL :older_than MICROSECOND
ORDER BY trx_started
