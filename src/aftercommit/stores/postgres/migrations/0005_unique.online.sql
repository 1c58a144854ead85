-- Of the events that are not done, one at most has a unique key. What has none is in no index.
ALTER TABLE {table} ADD COLUMN IF NOT EXISTS unique_key varchar(255){bytewise};

DROP INDEX CONCURRENTLY IF EXISTS {qualified_index:unique};

CREATE UNIQUE INDEX CONCURRENTLY {index:unique} ON {table} (unique_key)
WHERE unique_key IS NOT NULL AND status NOT IN (1, 3);
