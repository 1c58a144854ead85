-- Write many events in the caller's transaction, in order, but those whose unique key another one has that is not done.
INSERT INTO {table} ({written}, unique_key)
SELECT {values:new}, new.unique_key
FROM {new_unique_rows}
ORDER BY number
ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND {unfinished} DO NOTHING
RETURNING event_id, handler_id
