-- The tables beside the table of events whose names begin so, wherever the search path found it.
SELECT relname
FROM pg_class
WHERE relkind IN ('r', 'p')
  AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('{table}'))
  AND strpos(relname, :name) = 1
