-- Rows that were purged before they were delivered are there again, in their places. Those that are there stay as they
-- are. Not born done once more: what is born done comes from the log.
INSERT INTO {table} (position, {written}, status) OVERRIDING SYSTEM VALUE
SELECT position, {written}, 2
FROM json_populate_recordset(NULL::{table}, :rows::text::json) AS gone
ON CONFLICT (event_id, handler_id) DO NOTHING
