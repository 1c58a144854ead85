-- Replication slots, whether somebody reads each, and how many bytes of the log the server keeps for it. A tail of ours
-- has its slot's lock all the time, and is connected to the slot only while it looks.
SELECT slot_name::text,
       active OR EXISTS (
         SELECT FROM pg_locks
         WHERE locktype = 'advisory' AND granted AND objsubid = 1
           AND (classid::bigint << 32 | objid::bigint) = hashtextextended('aftercommit:tail:' || slot_name, 0)
       ),
       coalesce(pg_wal_lsn_diff(
         CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn
       ), 0)::bigint
FROM pg_replication_slots
WHERE NOT temporary
ORDER BY 3 DESC
