-- Write many plain events in the caller's transaction, in order; born free.
INSERT INTO {table} ({plain})
SELECT {plain_values:new}
FROM {new_free_rows}
ORDER BY number
