-- The columns and indexes of one table, and what is wrong with them.
SELECT N'column', name, NULL FROM sys.columns WHERE object_id = OBJECT_ID(:qualified, N'U')
UNION ALL
SELECT N'index', name, CASE WHEN is_disabled = 1 THEN N'is disabled' END
FROM sys.indexes
WHERE object_id = OBJECT_ID(:qualified, N'U') AND name IS NOT NULL
