-- Whether the schema table is there, found as the other statements find it.
SELECT COUNT(OBJECT_ID(N'{schema_table}', N'U'))
