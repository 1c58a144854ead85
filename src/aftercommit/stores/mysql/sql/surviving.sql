-- Which of the rows that this transaction wrote it still has.
SELECT {table}.event_id, {table}.handler_id
FROM JSON_TABLE(:event_ids, '$[*]' COLUMNS (
  event_id VARCHAR(255) CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */ PATH '$'
)) AS wanted
STRAIGHT_JOIN {table} FORCE INDEX ({index:event}) ON {table}.event_id = wanted.event_id
