-- The table of events, and what is known about it. Filtered indexes need these settings, here and in every writer.
SET ANSI_NULLS ON;
SET ANSI_PADDING ON;
SET ANSI_WARNINGS ON;
SET ARITHABORT ON;
SET CONCAT_NULL_YIELDS_NULL ON;
SET QUOTED_IDENTIFIER ON;
SET NUMERIC_ROUNDABORT OFF;

CREATE TABLE {schema_table} (
  name nvarchar(64) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
  value nvarchar(255) NOT NULL
);

CREATE TABLE {table} (
  position bigint IDENTITY(1, 1) NOT NULL,
  event_id nvarchar(72) COLLATE Latin1_General_100_BIN2 NOT NULL,
  handler_id nvarchar(510) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'',
  ids_size AS (DATALENGTH(event_id) * 2048 + DATALENGTH(handler_id)),
  event_type nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
  aggregate_type nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
  aggregate_id nvarchar(256) COLLATE Latin1_General_100_BIN2,
  tenant_id nvarchar(128) COLLATE Latin1_General_100_BIN2,
  event_key nvarchar(510) COLLATE Latin1_General_100_BIN2,
  partition_no smallint NOT NULL,
  payload nvarchar(max),
  payload_bytes varbinary(max),
  content_type nvarchar(256) NOT NULL,
  payload_version int NOT NULL DEFAULT 1,
  headers nvarchar(max),
  done_handlers nvarchar(max),
  status smallint NOT NULL DEFAULT 0,
  attempts int NOT NULL DEFAULT 0,
  abandoned smallint NOT NULL DEFAULT 0,
  occurred_at datetime2(6) NOT NULL,
  scheduled_at datetime2(6),
  created_at datetime2(6) NOT NULL,
  available_at datetime2(6) NOT NULL,
  done_at datetime2(6),
  last_error nvarchar(max),
  locked_by nvarchar(256) COLLATE Latin1_General_100_BIN2,
  locked_at datetime2(6),
  lease_until datetime2(6),
  lease_epoch int NOT NULL DEFAULT 0,
  CONSTRAINT {index:pk} PRIMARY KEY CLUSTERED (position),
  CONSTRAINT {index:status} CHECK (status IN (0, 1, 2, 3)),
  CONSTRAINT {index:payload} CHECK (
    (payload IS NULL AND payload_bytes IS NOT NULL) OR (payload IS NOT NULL AND payload_bytes IS NULL)
  )
);

ALTER TABLE {table} SET (LOCK_ESCALATION = DISABLE);

CREATE UNIQUE INDEX {index:event} ON {table} (event_id, handler_id, ids_size);

CREATE INDEX {index:pending} ON {table} (available_at, position) WHERE status IN (0, 2);

CREATE INDEX {index:ended} ON {table} (status, done_at) WHERE status IN (1, 3);

CREATE INDEX {index:dead} ON {table} (position) WHERE status = 3;
