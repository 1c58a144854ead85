-- The last errors of rows; and the handlers and event types that are paused.
CREATE TABLE {failure_table} (
  number bigint IDENTITY(1, 1) NOT NULL PRIMARY KEY,
  event_id nvarchar(72) COLLATE Latin1_General_100_BIN2 NOT NULL,
  handler_id nvarchar(510) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'',
  failed_at datetime2(6) NOT NULL,
  attempt int NOT NULL,
  handler nvarchar(510) NOT NULL,
  instance nvarchar(256) NOT NULL,
  error_class nvarchar(510) NOT NULL,
  message nvarchar(max) NOT NULL,
  traceback nvarchar(max)
);

CREATE INDEX {index:failed} ON {failure_table} (event_id, handler_id, number);

CREATE TABLE {pause_table} (
  kind nvarchar(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
  name nvarchar(510) COLLATE Latin1_General_100_BIN2 NOT NULL,
  reason nvarchar(max),
  paused_by nvarchar(256) NOT NULL,
  paused_at datetime2(6) NOT NULL,
  paused_until datetime2(6),
  PRIMARY KEY (kind, name)
);
