-- The next statement, which is a transaction by itself, reads also what is not committed.
SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED
