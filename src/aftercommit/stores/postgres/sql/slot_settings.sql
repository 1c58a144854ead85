-- Whether this server can replicate rows at all.
SELECT current_setting('wal_level'), pg_is_in_recovery()
