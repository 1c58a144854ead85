-- The engine that keeps the table.
SELECT engine
FROM information_schema.tables
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name
