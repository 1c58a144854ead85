-- The last errors of rows; and the handlers and event types that are paused.
CREATE TABLE {failure_table} (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id TEXT NOT NULL,
  handler_id TEXT NOT NULL DEFAULT '',
  failed_at INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  handler TEXT NOT NULL,
  instance TEXT NOT NULL,
  error_class TEXT NOT NULL,
  message TEXT NOT NULL,
  traceback TEXT
);

CREATE INDEX {index:failed} ON {failure_table} (event_id, handler_id, number);

CREATE TABLE {pause_table} (
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  reason TEXT,
  paused_by TEXT NOT NULL,
  paused_at INTEGER NOT NULL,
  paused_until INTEGER,
  PRIMARY KEY (kind, name)
) WITHOUT ROWID;
