-- Whether the schema table is there.
SELECT COUNT(*)
FROM information_schema.tables
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name
