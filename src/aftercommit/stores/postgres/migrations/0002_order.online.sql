-- Keys in order of their unfinished rows. An event without a key is alone under its own id.
DROP INDEX CONCURRENTLY IF EXISTS {qualified_index:order};

CREATE INDEX CONCURRENTLY {index:order} ON {table} (partition_no, coalesce(event_key, event_id), position)
WHERE status NOT IN (1, 3);

-- The dead rows of keys.
DROP INDEX CONCURRENTLY IF EXISTS {qualified_index:blocking};

CREATE INDEX CONCURRENTLY {index:blocking} ON {table} (partition_no, coalesce(event_key, event_id), position)
WHERE status >= 3;
