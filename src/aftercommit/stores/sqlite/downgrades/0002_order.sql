-- Events in no order, and nothing that says how it was kept.
DROP INDEX IF EXISTS {index:order};

DROP INDEX IF EXISTS {index:blocking};

DELETE FROM {schema_table} WHERE name IN ('ordered', 'on_dead');
