-- Whether the schema table is there. By way of the catalogue: a session that has waited for the schema lock may still
-- remember that there was none.
SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('{schema_table}')
