-- How many rows of the table live and are dead, what is set for its vacuum, and by default.
SELECT coalesce(n_live_tup, 0), coalesce(n_dead_tup, 0), coalesce(array_to_string(reloptions, ','), ''),
       current_setting('autovacuum'), current_setting('autovacuum_vacuum_scale_factor')
FROM pg_class LEFT JOIN pg_stat_all_tables ON relid = pg_class.oid
WHERE pg_class.oid = to_regclass('{table}')
