-- Events without the columns of order.
ALTER TABLE {table} DROP INDEX IF EXISTS {index:order};

ALTER TABLE {table} DROP COLUMN IF EXISTS order_key;

ALTER TABLE {table} DROP COLUMN IF EXISTS is_dead;

DELETE FROM {schema_table} WHERE name IN ('ordered', 'on_dead');
