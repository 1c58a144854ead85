-- What the server knows of a slot, of its publication, and of what makes rows be born done because of it.
SELECT slot.plugin, slot.database, coalesce(slot.wal_status, ''), current_database(),
       coalesce(slot.active, false) OR EXISTS (
         SELECT FROM pg_catalog.pg_locks
         WHERE locktype = 'advisory' AND granted AND objsubid = 1
           AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
           AND (classid::bigint << 32 | objid::bigint) = hashtextextended('aftercommit:tail:' || :slot::text, 0)
       ),
       pg_wal_lsn_diff(slot.confirmed_flush_lsn, '0/0')::bigint,
       pg_wal_lsn_diff(log.ends_at, '0/0')::bigint,
       greatest(0, pg_wal_lsn_diff(log.ends_at, slot.restart_lsn))::bigint,
       EXISTS (
         SELECT FROM pg_catalog.pg_publication_tables
         WHERE pubname = :publication::text AND to_regclass(quote_ident(schemaname) || '.' || quote_ident(tablename)) = to_regclass('{table}')
       ),
       EXISTS (
         SELECT FROM pg_catalog.pg_trigger
         WHERE tgrelid = to_regclass('{table}') AND tgname = :trigger::text AND tgenabled <> 'D'
       ),
       clock_timestamp() AT TIME ZONE 'UTC'
FROM (
  SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END AS ends_at
) AS log
LEFT JOIN pg_catalog.pg_replication_slots AS slot ON slot.slot_name = :slot::text
