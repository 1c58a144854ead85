-- The instances that deliver, and who of them owns which partition: all 256 there will ever be, so that nobody begins.
CREATE TABLE {instance_table} (
  id TEXT NOT NULL PRIMARY KEY,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  status INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE {partition_table} (
  partition_no INTEGER PRIMARY KEY,
  owner TEXT,
  epoch INTEGER NOT NULL DEFAULT 0,
  expires_at INTEGER
);

INSERT INTO {partition_table} (partition_no)
WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 255)
SELECT number FROM numbers;
