-- What each consumer has had, and the mark of the table. The two names are longer than a key by which rows are stored.
IF OBJECT_ID(N'{table}', N'U') IS NULL CREATE TABLE {table} (
  consumer nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
  message_id nvarchar(510) COLLATE Latin1_General_100_BIN2 NOT NULL,
  names_size AS (DATALENGTH(consumer) * 2048 + DATALENGTH(message_id)),
  received_at datetime2(6) NOT NULL
);

IF NOT EXISTS (
  SELECT 1 FROM sys.indexes WHERE object_id = OBJECT_ID(N'{table}', N'U') AND QUOTENAME(name) = N'{index:message}'
) CREATE UNIQUE INDEX {index:message} ON {table} (consumer, message_id, names_size);

IF NOT EXISTS (
  SELECT 1 FROM sys.indexes WHERE object_id = OBJECT_ID(N'{table}', N'U') AND QUOTENAME(name) = N'{index:received}'
) CREATE INDEX {index:received} ON {table} (received_at);

INSERT INTO {table} (consumer, message_id, received_at)
SELECT N'', {new_id}, {now} WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE consumer = N'');
