-- The columns and the index by which MySQL keeps order, so that both have the same tables, and what is counted by partition.
-- Each statement may find its work done. MySQL, which knows no IF NOT EXISTS here, has a longer text.
ALTER TABLE {table} ADD COLUMN IF NOT EXISTS
  is_dead TINYINT GENERATED ALWAYS AS (CASE status WHEN 1 THEN NULL WHEN 3 THEN 1 ELSE 0 END) VIRTUAL;

ALTER TABLE {table} ADD COLUMN IF NOT EXISTS
  order_key VARCHAR(255) CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */
  GENERATED ALWAYS AS (CASE WHEN status <> 1 THEN COALESCE(event_key, event_id) END) VIRTUAL;

ALTER TABLE {table} ADD INDEX IF NOT EXISTS {index:order} (partition_no, is_dead, order_key, position);
