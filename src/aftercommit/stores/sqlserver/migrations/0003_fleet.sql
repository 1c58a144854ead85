-- The instances that deliver, and who of them owns which partition; all partitions there will ever be.
CREATE TABLE {instance_table} (
  id nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
  host nvarchar(510) NOT NULL,
  pid int NOT NULL,
  started_at datetime2(6) NOT NULL,
  heartbeat_at datetime2(6) NOT NULL,
  status smallint NOT NULL DEFAULT 0
);

CREATE TABLE {partition_table} (
  partition_no smallint NOT NULL PRIMARY KEY,
  owner nvarchar(256) COLLATE Latin1_General_100_BIN2,
  epoch int NOT NULL DEFAULT 0,
  expires_at datetime2(6)
);

WITH numbers AS (SELECT 0 AS number UNION ALL SELECT number + 1 FROM numbers WHERE number < 255)
INSERT INTO {partition_table} (partition_no)
SELECT number FROM numbers
OPTION (MAXRECURSION 255);
