-- The server's clock, in microseconds since 1970.
SELECT DATEDIFF_BIG(microsecond, '1970-01-01', SYSUTCDATETIME())
