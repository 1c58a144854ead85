-- The columns and indexes of one table, and what is wrong with them.
SELECT 'column', attname::text, NULL::text
FROM pg_catalog.pg_attribute
WHERE attrelid = to_regclass(:qualified) AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'index', relname::text, CASE WHEN NOT indisvalid THEN 'is invalid' END
FROM pg_catalog.pg_index JOIN pg_catalog.pg_class ON pg_class.oid = indexrelid
WHERE indrelid = to_regclass(:qualified)
