-- How many dead rows.
SELECT count(*)
FROM {table_by:dead}
WHERE {is_dead} AND {matching}
