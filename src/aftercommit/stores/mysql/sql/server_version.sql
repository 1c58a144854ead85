-- The release of the server.
SELECT VERSION()
