-- What each consumer has had, and the mark of the table. The key is longer than one by which rows could be stored.
IF OBJECT_ID(N'{table}', N'U') IS NULL CREATE TABLE {table} (
  consumer nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
  message_id nvarchar(510) COLLATE Latin1_General_100_BIN2 NOT NULL,
  names_size AS (DATALENGTH(consumer) * 2048 + DATALENGTH(message_id)) PERSISTED NOT NULL,
  received_at datetime2(6) NOT NULL,
  PRIMARY KEY NONCLUSTERED (consumer, message_id, names_size),
  INDEX {index:received} CLUSTERED (received_at)
);

INSERT INTO {table} (consumer, message_id, received_at)
SELECT N'', {new_id}, {now} WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE consumer = N'');
