-- Up to here there is something to read.
SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint
