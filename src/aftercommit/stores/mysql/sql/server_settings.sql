-- What decides whether an answered commit can be lost, and whether this server takes writes and logs them.
SHOW GLOBAL VARIABLES WHERE variable_name IN (
  'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'binlog_format', 'read_only', 'super_read_only',
  'offline_mode', 'innodb_doublewrite'
)
