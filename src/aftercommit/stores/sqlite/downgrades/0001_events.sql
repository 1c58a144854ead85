-- Nothing is left: no event, and nothing that is known about them.
DROP TABLE IF EXISTS {table};

DROP TABLE IF EXISTS {schema_table};
