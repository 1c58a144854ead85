-- Rows that were purged before they were delivered are there again, as they were. Those that are there stay as they are.
INSERT INTO {table} OVERRIDING SYSTEM VALUE
SELECT * FROM json_populate_recordset(NULL::{table}, :rows::text::json)
ON CONFLICT (event_id, handler_id) DO NOTHING
