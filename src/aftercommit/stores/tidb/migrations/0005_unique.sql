-- Of the events that are not done, one at most has a unique key. Each statement may find its work done. MySQL, which knows no
-- IF NOT EXISTS here, has a longer text.
ALTER TABLE {table} ADD COLUMN IF NOT EXISTS
  unique_key VARCHAR(255) CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */;

ALTER TABLE {table} ADD COLUMN IF NOT EXISTS
  unique_pending VARCHAR(255) CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */
  GENERATED ALWAYS AS (CASE WHEN status IN (0, 2) THEN unique_key END) VIRTUAL;

ALTER TABLE {table} ADD UNIQUE INDEX IF NOT EXISTS {index:unique} (unique_pending);
