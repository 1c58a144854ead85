-- The instances that deliver, and who of them owns which partition. Each statement may find its work done.
CREATE TABLE IF NOT EXISTS {instance_table} (
  id VARCHAR(128) NOT NULL PRIMARY KEY,
  host VARCHAR(255) NOT NULL,
  pid INT NOT NULL,
  started_at DATETIME(6) NOT NULL,
  heartbeat_at DATETIME(6) NOT NULL,
  status SMALLINT NOT NULL DEFAULT 0
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS {partition_table} (
  partition_no SMALLINT NOT NULL PRIMARY KEY,
  owner VARCHAR(128),
  epoch INT NOT NULL DEFAULT 0,
  expires_at DATETIME(6)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */;

-- All there will ever be, so that nobody has to begin.
INSERT IGNORE INTO {partition_table} (partition_no)
WITH RECURSIVE numbers AS (SELECT 0 AS number UNION ALL SELECT number + 1 FROM numbers WHERE number < 255)
SELECT number FROM numbers;
