-- The columns and indexes of one table, and what is wrong with them: a position must never be given out again.
SELECT 'column', info.name,
  CASE WHEN info.name = 'position' AND instr(upper(made.sql), 'AUTOINCREMENT') = 0 THEN 'is not AUTOINCREMENT' END
FROM sqlite_master AS made JOIN pragma_table_info(made.name) AS info
WHERE made.type = 'table' AND made.name = :name
UNION ALL
SELECT 'index', name, NULL FROM sqlite_master WHERE type = 'index' AND tbl_name = :name
