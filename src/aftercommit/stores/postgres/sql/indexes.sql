-- The indexes whose names begin as the table's, wherever the search path found it, and whether each can be used.
SELECT found.relname, indisvalid AND indisready
FROM pg_index
JOIN pg_class AS found ON found.oid = indexrelid
WHERE found.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('{table}'))
  AND strpos(found.relname, :name) = 1
