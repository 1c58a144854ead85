-- Events in no order, and nothing that says how it was kept.
DROP INDEX IF EXISTS {index:order} ON {table};

DROP INDEX IF EXISTS {index:blocking} ON {table};

ALTER TABLE {table} DROP COLUMN IF EXISTS order_key;

DELETE FROM {schema_table} WHERE name IN ('ordered', 'on_dead');
