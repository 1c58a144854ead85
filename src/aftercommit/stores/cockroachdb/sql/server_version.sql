-- The release of the server, and not the one of PostgreSQL that it takes after.
SELECT version()
