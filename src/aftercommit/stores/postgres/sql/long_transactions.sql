-- Transactions that have been open for long, prepared ones too, oldest first: who, how, for how long, and what ends it.
SELECT concat('the session ', pid, CASE WHEN application_name <> '' THEN concat(' of ', application_name) END),
       coalesce(state, 'hidden'), {since:xact_start}, concat('SELECT pg_terminate_backend(', pid, ')')
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) AND xact_start < {now_minus:older_than}
UNION ALL
SELECT concat('the prepared transaction ', gid), 'prepared', {since:prepared},
       concat('ROLLBACK PREPARED ', quote_literal(gid))
FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < {now_minus:older_than}
ORDER BY 3 DESC
