-- Of the events that are not done, one at most has a unique key: of all others `unique_pending` is NULL, and of NULLs there
-- may be many. Each statement may find its work done: DDL commits by itself here. All of them wait for transactions that have
-- used the table, and everybody else waits behind them: not for longer than this.
SET @aftercommit_patience = @@SESSION.lock_wait_timeout, SESSION lock_wait_timeout = 10;

-- MariaDB writes a table anew for a column, and keeps writers out meanwhile, where an index has a computed column. Without
-- that index it is done at once, and the index is built beside writers; what keeps order waits for it.
SET @aftercommit = IF(
  LOCATE('MariaDB', VERSION()) = 0
  OR (SELECT COUNT(*) FROM information_schema.columns
   WHERE table_schema = IF(LOCATE('.', '{table}') > 0, REPLACE(SUBSTRING_INDEX('{table}', '.', 1), '`', ''), DATABASE())
     AND table_name = REPLACE('{table_name}', '`', '') AND column_name = 'unique_key') > 0
  OR (SELECT COUNT(*) FROM information_schema.statistics
   WHERE table_schema = IF(LOCATE('.', '{table}') > 0, REPLACE(SUBSTRING_INDEX('{table}', '.', 1), '`', ''), DATABASE())
     AND table_name = REPLACE('{table_name}', '`', '') AND index_name = REPLACE('{index:order}', '`', '')) = 0,
  'DO 0',
  'ALTER TABLE {table} DROP INDEX {index:order}'
);

PREPARE aftercommit FROM @aftercommit;

EXECUTE aftercommit;

SET @aftercommit = IF(
  (SELECT COUNT(*) FROM information_schema.columns
   WHERE table_schema = IF(LOCATE('.', '{table}') > 0, REPLACE(SUBSTRING_INDEX('{table}', '.', 1), '`', ''), DATABASE())
     AND table_name = REPLACE('{table_name}', '`', '') AND column_name = 'unique_key') > 0,
  'DO 0',
  'ALTER TABLE {table}
    ADD COLUMN unique_key VARCHAR(255) CHARACTER SET utf8mb4
      /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */'
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

SET @aftercommit = IF(
  (SELECT COUNT(*) FROM information_schema.columns
   WHERE table_schema = IF(LOCATE('.', '{table}') > 0, REPLACE(SUBSTRING_INDEX('{table}', '.', 1), '`', ''), DATABASE())
     AND table_name = REPLACE('{table_name}', '`', '') AND column_name = 'unique_pending') > 0,
  'DO 0',
  'ALTER TABLE {table}
    ADD COLUMN unique_pending VARCHAR(255) CHARACTER SET utf8mb4
      /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */
      GENERATED ALWAYS AS (CASE WHEN status IN (0, 2) THEN unique_key END) VIRTUAL'
);

PREPARE aftercommit FROM @aftercommit;

EXECUTE aftercommit;

SET @aftercommit = IF(
  (SELECT COUNT(*) FROM information_schema.statistics
   WHERE table_schema = IF(LOCATE('.', '{table}') > 0, REPLACE(SUBSTRING_INDEX('{table}', '.', 1), '`', ''), DATABASE())
     AND table_name = REPLACE('{table_name}', '`', '') AND index_name = REPLACE('{index:unique}', '`', '')) > 0,
  'DO 0',
  'ALTER TABLE {table} ADD UNIQUE INDEX {index:unique} (unique_pending)'
);

PREPARE aftercommit FROM @aftercommit;

EXECUTE aftercommit;

DEALLOCATE PREPARE aftercommit;

SET SESSION lock_wait_timeout = @aftercommit_patience;
