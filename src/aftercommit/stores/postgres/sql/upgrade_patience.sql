-- A change of the table waits for those who use it no longer than this: everybody else waits behind it.
SET LOCAL lock_timeout = '5s'
