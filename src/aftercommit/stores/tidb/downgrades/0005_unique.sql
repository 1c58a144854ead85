-- No unique keys.
ALTER TABLE {table} DROP INDEX IF EXISTS {index:unique};

ALTER TABLE {table} DROP COLUMN IF EXISTS unique_pending;

ALTER TABLE {table} DROP COLUMN IF EXISTS unique_key;
