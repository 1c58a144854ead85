-- The table of events, and what is known about it. Each statement may find its work done: DDL commits by itself here.
-- Ids and keys compare by their bytes, blanks at the end too; MySQL and MariaDB have different names for that.
CREATE TABLE IF NOT EXISTS {schema_table} (
  name VARCHAR(64) NOT NULL PRIMARY KEY,
  value VARCHAR(255) NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS {table} (
  position BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  event_id VARCHAR(36) NOT NULL,
  handler_id VARCHAR(255) NOT NULL DEFAULT '',
  event_type VARCHAR(128) NOT NULL,
  aggregate_type VARCHAR(64) NOT NULL,
  aggregate_id VARCHAR(128),
  tenant_id VARCHAR(64),
  event_key VARCHAR(255),
  partition_no SMALLINT NOT NULL,
  payload LONGTEXT,
  payload_bytes LONGBLOB,
  content_type VARCHAR(255) NOT NULL,
  payload_version INT NOT NULL DEFAULT 1,
  headers LONGTEXT,
  done_handlers LONGTEXT,
  status SMALLINT NOT NULL DEFAULT 0,
  attempts INT NOT NULL DEFAULT 0,
  abandoned SMALLINT NOT NULL DEFAULT 0,
  occurred_at DATETIME(6) NOT NULL,
  scheduled_at DATETIME(6),
  created_at DATETIME(6) NOT NULL,
  available_at DATETIME(6) NOT NULL,
  done_at DATETIME(6),
  last_error TEXT,
  locked_by VARCHAR(128),
  locked_at DATETIME(6),
  lease_until DATETIME(6),
  lease_epoch INT NOT NULL DEFAULT 0,
  UNIQUE KEY {index:event} (event_id, handler_id),
  KEY {index:pending} (status, available_at, position),
  KEY {index:ended} (status, done_at),
  KEY {index:dead} (status, position),
  CHECK (status IN (0, 1, 2, 3)),
  CHECK ((payload IS NULL) <> (payload_bytes IS NULL))
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */{one_counter};
