-- The last errors of rows; and the handlers and event types that are paused. Each statement may find its work done.
CREATE TABLE IF NOT EXISTS {failure_table} (
  number BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  event_id VARCHAR(36) NOT NULL,
  handler_id VARCHAR(255) NOT NULL DEFAULT '',
  failed_at DATETIME(6) NOT NULL,
  attempt INT NOT NULL,
  handler VARCHAR(255) NOT NULL,
  instance VARCHAR(128) NOT NULL,
  error_class VARCHAR(255) NOT NULL,
  message TEXT NOT NULL,
  traceback TEXT,
  KEY {index:failed} (event_id, handler_id, number)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */{one_counter};

CREATE TABLE IF NOT EXISTS {pause_table} (
  kind VARCHAR(16) NOT NULL,
  name VARCHAR(255) NOT NULL,
  reason TEXT,
  paused_by VARCHAR(128) NOT NULL,
  paused_at DATETIME(6) NOT NULL,
  paused_until DATETIME(6),
  PRIMARY KEY (kind, name)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */;
