-- No unique keys. MySQL knows no IF EXISTS for columns and indexes. Everybody waits behind a change of the table: not for
-- longer than this.
SET @aftercommit_patience = @@SESSION.lock_wait_timeout, SESSION lock_wait_timeout = 10;

SET @aftercommit = IF(
  (SELECT COUNT(*) FROM information_schema.columns
   WHERE table_schema = IF(LOCATE('.', '{table}') > 0, REPLACE(SUBSTRING_INDEX('{table}', '.', 1), '`', ''), DATABASE())
     AND table_name = REPLACE('{table_name}', '`', '') AND column_name = 'unique_pending') = 0,
  'DO 0',
  'ALTER TABLE {table} DROP INDEX {index:unique}, DROP COLUMN unique_pending'
);

PREPARE aftercommit FROM @aftercommit;

EXECUTE aftercommit;

SET @aftercommit = IF(
  (SELECT COUNT(*) FROM information_schema.columns
   WHERE table_schema = IF(LOCATE('.', '{table}') > 0, REPLACE(SUBSTRING_INDEX('{table}', '.', 1), '`', ''), DATABASE())
     AND table_name = REPLACE('{table_name}', '`', '') AND column_name = 'unique_key') = 0,
  'DO 0',
  'ALTER TABLE {table} DROP COLUMN unique_key'
);

PREPARE aftercommit FROM @aftercommit;

EXECUTE aftercommit;

DEALLOCATE PREPARE aftercommit;

SET SESSION lock_wait_timeout = @aftercommit_patience;
