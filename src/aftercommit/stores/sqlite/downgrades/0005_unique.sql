-- No unique keys.
DROP INDEX IF EXISTS {index:unique};

ALTER TABLE {table} DROP COLUMN unique_key;
