-- Whether an event that is not done has a unique key, as it is now, whatever the transaction has seen before.
SELECT position
FROM {table} FORCE INDEX ({index:unique})
WHERE unique_pending = :unique_key
FOR UPDATE
