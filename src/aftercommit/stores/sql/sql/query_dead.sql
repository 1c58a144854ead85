-- Dead rows behind a position, in its order.
SELECT {recorded}
FROM {table_by:dead}
WHERE {is_dead} AND position > :position AND {matching}
ORDER BY position
LIMIT :limit
