-- What waits and what is dead, key by key. Keys go as bytes, since no collation tells "a" from "a " here.
ALTER TABLE {table} ADD order_key AS CAST(COALESCE(event_key, event_id) AS varbinary(1020));

CREATE INDEX {index:order} ON {table} (partition_no, order_key, position) WHERE status IN (0, 2);

CREATE INDEX {index:blocking} ON {table} (partition_no, order_key, position) WHERE status = 3;
