-- Changes that are not confirmed yet, in the order of their commits, behind so many that were read before. The server
-- stops only at the end of a transaction, so what is sent is bounded here: in number and in bytes, and at least one.
-- Rows are counted as they come, without sorting them: what makes them knows their order, and who reads looks at it.
-- Letters of kinds: 66 begins a transaction, 67 ends it, 73 is a row; 82 tells what the table is like, and counts nothing.
SELECT number, data
FROM (
  SELECT number, data, kind, counted,
         sum(CASE WHEN counted > :skip::bigint THEN octet_length(data) ELSE 0 END) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
  FROM (
    SELECT number, data, get_byte(data, 0) AS kind,
           count(*) FILTER (WHERE get_byte(data, 0) <> 82) OVER (ROWS UNBOUNDED PRECEDING) AS counted
    FROM pg_logical_slot_peek_binary_changes(
      :slot::text, NULL, :enough::integer, 'proto_version', '1', 'publication_names', quote_ident(:publication::text)
    ) WITH ORDINALITY AS change (lsn, xid, data, number)
    WHERE get_byte(data, 0) IN (66, 67, 73, 82)
  ) AS numbered
) AS seen
WHERE kind = 82 OR (counted > :skip::bigint AND bytes - octet_length(data) < :most_bytes::bigint)
LIMIT :limit
