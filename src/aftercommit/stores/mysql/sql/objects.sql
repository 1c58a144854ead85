-- The columns and indexes of one table, and what is wrong with them: text has to compare byte by byte, blanks too.
SELECT 'column', column_name,
  CASE WHEN collation_name NOT IN ('utf8mb4_0900_bin', 'utf8mb4_nopad_bin') THEN CONCAT('compares by ', collation_name) END
FROM information_schema.columns
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name
UNION ALL
SELECT DISTINCT 'index', index_name, NULL
FROM information_schema.statistics
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name
