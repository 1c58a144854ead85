-- Of the events that are not done, one at most has a unique key.
ALTER TABLE {table} ADD COLUMN unique_key TEXT;

CREATE UNIQUE INDEX {index:unique} ON {table} (unique_key) WHERE unique_key IS NOT NULL AND status IN (0, 2);
