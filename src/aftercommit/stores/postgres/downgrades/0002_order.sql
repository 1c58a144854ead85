-- Events in no order, and nothing that says how it was kept.
DROP INDEX IF EXISTS {qualified_index:order};

DROP INDEX IF EXISTS {qualified_index:blocking};

DELETE FROM {schema_table} WHERE name IN ('ordered', 'on_dead');
