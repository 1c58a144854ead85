-- The tables whose names begin so.
SELECT name
FROM sys.tables
WHERE schema_id = COALESCE(SCHEMA_ID(:schema), SCHEMA_ID()) AND CHARINDEX(:name, name) = 1
