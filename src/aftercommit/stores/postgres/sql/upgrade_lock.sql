-- One process at a time changes tables. It waits without a snapshot: an index that is built beside would wait for that.
LOCK TABLE {schema_table} IN SHARE UPDATE EXCLUSIVE MODE
