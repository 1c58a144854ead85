-- Dead rows behind a position, in its order.
SELECT TOP (:limit) {recorded}
FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
WHERE status = 3 AND position > :position AND {matching}
ORDER BY position
