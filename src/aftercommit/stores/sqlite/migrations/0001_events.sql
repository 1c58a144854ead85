-- The table of events, and what is known about it.
CREATE TABLE {schema_table} (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE {table} (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id TEXT NOT NULL,
  handler_id TEXT NOT NULL DEFAULT '',
  event_type TEXT NOT NULL,
  aggregate_type TEXT NOT NULL,
  aggregate_id TEXT,
  tenant_id TEXT,
  event_key TEXT,
  partition_no INTEGER NOT NULL,
  payload TEXT,
  payload_bytes BLOB,
  content_type TEXT NOT NULL,
  payload_version INTEGER NOT NULL DEFAULT 1,
  headers TEXT,
  done_handlers TEXT,
  status INTEGER NOT NULL DEFAULT 0 CHECK (status IN (0, 1, 2, 3)),
  attempts INTEGER NOT NULL DEFAULT 0,
  abandoned INTEGER NOT NULL DEFAULT 0,
  occurred_at INTEGER NOT NULL,
  scheduled_at INTEGER,
  created_at INTEGER NOT NULL,
  available_at INTEGER NOT NULL,
  done_at INTEGER,
  last_error TEXT,
  locked_by TEXT,
  locked_at INTEGER,
  lease_until INTEGER,
  lease_epoch INTEGER NOT NULL DEFAULT 0,
  CHECK ((payload IS NULL) <> (payload_bytes IS NULL))
);

CREATE UNIQUE INDEX {index:event} ON {table} (event_id, handler_id);

CREATE INDEX {index:pending} ON {table} (available_at, position) WHERE status IN (0, 2);

CREATE INDEX {index:ended} ON {table} (status, done_at) WHERE status IN (1, 3);

CREATE INDEX {index:dead} ON {table} (position) WHERE status = 3;
