-- What this session has set that statements cannot bear: NULL in an array would be the text 'NULL'.
SELECT 'array_nulls = off' WHERE NOT current_setting('array_nulls')::boolean
