-- The release of the library; reads the file, so that one that is no database is known.
SELECT sqlite_version() FROM (SELECT count(*) FROM sqlite_master)
