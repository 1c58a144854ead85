-- Transactions that have been open for long, oldest first: who, how, for how long, and what ends it.
-- InnoDB tells their start in the time of the server's system, whatever zone the session has.
SELECT CONCAT('the session ', trx_mysql_thread_id), trx_state,
       TIMESTAMPDIFF(MICROSECOND, CONVERT_TZ(trx_started, 'SYSTEM', '+00:00'), {now}),
       CONCAT('KILL ', trx_mysql_thread_id)
FROM information_schema.innodb_trx
WHERE trx_mysql_thread_id <> CONNECTION_ID()
  AND CONVERT_TZ(trx_started, 'SYSTEM', '+00:00') < {now} - INTERVAL :older_than MICROSECOND
ORDER BY trx_started
