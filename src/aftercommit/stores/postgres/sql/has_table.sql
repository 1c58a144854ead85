-- Whether the schema table is there.
SELECT CASE WHEN to_regclass('{schema_table}') IS NULL THEN 0 ELSE 1 END
