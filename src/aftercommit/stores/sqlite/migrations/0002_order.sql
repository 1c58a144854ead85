-- Keys in order of their unfinished and of their dead rows; an event without a key is alone under its own id.
CREATE INDEX {index:order} ON {table} (partition_no, coalesce(event_key, event_id), position) WHERE status IN (0, 2);

CREATE INDEX {index:blocking} ON {table} (partition_no, coalesce(event_key, event_id), position) WHERE status = 3;
