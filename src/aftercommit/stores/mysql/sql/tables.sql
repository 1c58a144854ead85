-- The tables whose names begin so.
SELECT table_name
FROM information_schema.tables
WHERE table_schema = COALESCE(:schema, DATABASE()) AND LOCATE(:name, table_name) = 1
