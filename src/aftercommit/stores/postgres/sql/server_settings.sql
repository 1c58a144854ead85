-- What decides whether an answered commit can be lost, and whether this server takes writes.
SELECT current_setting('fsync'), current_setting('synchronous_commit'), pg_is_in_recovery(),
       current_setting('default_transaction_read_only')
