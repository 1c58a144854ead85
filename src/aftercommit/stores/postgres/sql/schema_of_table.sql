-- The schema that the table is in, wherever the search path found it.
SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
 WHERE pg_class.oid = to_regclass('{table}')
