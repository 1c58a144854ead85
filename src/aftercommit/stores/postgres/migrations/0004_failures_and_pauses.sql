-- The last errors of rows.
CREATE TABLE {failure_table} (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event_id varchar(36){bytewise} NOT NULL,
  handler_id varchar(255){bytewise} NOT NULL DEFAULT '',
  failed_at timestamptz NOT NULL,
  attempt integer NOT NULL,
  handler varchar(255) NOT NULL,
  instance varchar(128) NOT NULL,
  error_class varchar(255) NOT NULL,
  message text NOT NULL,
  traceback text
);

CREATE INDEX {index:failed} ON {failure_table} (event_id, handler_id, number);

-- The handlers and event types that are paused.
CREATE TABLE {pause_table} (
  kind varchar(16){bytewise} NOT NULL,
  name varchar(255){bytewise} NOT NULL,
  reason text,
  paused_by varchar(128) NOT NULL,
  paused_at timestamptz NOT NULL,
  paused_until timestamptz,
  PRIMARY KEY (kind, name)
);
