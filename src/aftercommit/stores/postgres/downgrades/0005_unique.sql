-- No unique keys.
DROP INDEX IF EXISTS {qualified_index:unique};

ALTER TABLE {table} DROP COLUMN IF EXISTS unique_key;
