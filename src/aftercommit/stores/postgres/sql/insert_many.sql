-- Write many events in the caller's transaction, in order; born leased where they have an owner.
INSERT INTO {table} ({written})
SELECT {values:new}
FROM {new_rows}
ORDER BY number
