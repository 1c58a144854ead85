-- What each consumer has had, and the mark of the table.
CREATE TABLE IF NOT EXISTS {table} (
  consumer TEXT NOT NULL,
  message_id TEXT NOT NULL,
  received_at INTEGER NOT NULL,
  PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS {index:received} ON {table} (received_at);

INSERT INTO {table} (consumer, message_id, received_at)
SELECT '', {new_id}, {now} WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE consumer = '');
