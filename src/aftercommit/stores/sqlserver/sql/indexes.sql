-- The indexes whose names begin as the table's, and whether each can be used.
SELECT found.name, 1 - CAST(found.is_disabled AS int)
FROM sys.indexes AS found
INNER JOIN sys.objects AS owner ON owner.object_id = found.object_id
WHERE owner.schema_id = COALESCE(SCHEMA_ID(:schema), SCHEMA_ID()) AND CHARINDEX(:name, found.name) = 1
