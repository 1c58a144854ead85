-- The release of the server.
SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128))
