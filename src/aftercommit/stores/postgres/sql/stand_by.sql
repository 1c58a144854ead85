-- Hold the lock for as long as an online migration takes. A simple command also ends what is left of the query before it,
-- whose snapshot an index that is built beside would wait for.
SET LOCAL idle_in_transaction_session_timeout = 0
