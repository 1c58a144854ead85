-- One process at a time makes tables; the lock ends with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))
