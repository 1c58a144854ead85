-- Transactions that write the same key wait for each other until they end. Always in one order, so that two that share
-- several keys do not wait in a circle.
SELECT pg_advisory_xact_lock(lock)
FROM (
  SELECT DISTINCT hashtextextended(:table || ' ' || key, 0) AS lock
  FROM unnest(CAST(CAST(:keys AS text) AS text[])) AS key
  ORDER BY lock
) AS locks
