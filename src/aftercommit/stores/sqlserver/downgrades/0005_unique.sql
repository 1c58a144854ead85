-- No unique keys.
DROP INDEX IF EXISTS {index:unique} ON {table};

ALTER TABLE {table} DROP COLUMN IF EXISTS unique_bytes;

ALTER TABLE {table} DROP COLUMN IF EXISTS unique_key;
