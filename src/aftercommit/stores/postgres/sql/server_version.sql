-- The release of the server.
SELECT current_setting('server_version')
