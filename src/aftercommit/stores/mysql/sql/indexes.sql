-- The indexes whose names begin as the table's.
SELECT DISTINCT index_name, 1
FROM information_schema.statistics
WHERE table_schema = COALESCE(:schema, DATABASE()) AND LOCATE(:name, index_name) = 1
