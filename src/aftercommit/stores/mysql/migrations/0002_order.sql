-- What waits and what is dead, key by key: of rows that are done both columns are NULL. They are virtual, so that only
-- the index is built, and writers go on meanwhile. Each statement may find its work done: DDL commits by itself here.
-- MySQL knows no IF NOT EXISTS for columns, nor adds such columns together with an index. Both wait for transactions
-- that have used the table, and everybody else waits behind them: not for longer than this.
SET @aftercommit_patience = @@SESSION.lock_wait_timeout, SESSION lock_wait_timeout = 10;

SET @aftercommit = IF(
  (SELECT COUNT(*) FROM information_schema.columns
   WHERE table_schema = IF(LOCATE('.', '{table}') > 0, REPLACE(SUBSTRING_INDEX('{table}', '.', 1), '`', ''), DATABASE())
     AND table_name = REPLACE('{table_name}', '`', '') AND column_name = 'order_key') > 0,
  'DO 0',
  'ALTER TABLE {table}
    ADD COLUMN is_dead TINYINT GENERATED ALWAYS AS (CASE status WHEN 1 THEN NULL WHEN 3 THEN 1 ELSE 0 END) VIRTUAL,
    ADD COLUMN order_key VARCHAR(255) CHARACTER SET utf8mb4
      /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */
      GENERATED ALWAYS AS (CASE WHEN status <> 1 THEN COALESCE(event_key, event_id) END) VIRTUAL'
);

PREPARE aftercommit FROM @aftercommit;

EXECUTE aftercommit;

SET @aftercommit = IF(
  (SELECT COUNT(*) FROM information_schema.statistics
   WHERE table_schema = IF(LOCATE('.', '{table}') > 0, REPLACE(SUBSTRING_INDEX('{table}', '.', 1), '`', ''), DATABASE())
     AND table_name = REPLACE('{table_name}', '`', '') AND index_name = REPLACE('{index:order}', '`', '')) > 0,
  'DO 0',
  'ALTER TABLE {table} ADD INDEX {index:order} (partition_no, is_dead, order_key, position)'
);

PREPARE aftercommit FROM @aftercommit;

EXECUTE aftercommit;

DEALLOCATE PREPARE aftercommit;

SET SESSION lock_wait_timeout = @aftercommit_patience;
