-- What each consumer has had, and the mark of the table. Each statement may find its work done: DDL commits by itself.
CREATE TABLE IF NOT EXISTS {table} (
  consumer VARCHAR(128) NOT NULL,
  message_id VARCHAR(255) NOT NULL,
  received_at DATETIME(6) NOT NULL,
  PRIMARY KEY (consumer, message_id),
  KEY {index:received} (received_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */;

INSERT INTO {table} (consumer, message_id, received_at)
SELECT '', {new_id}, {now} FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE consumer = '');
