-- How changes are written: wal, if all is well.
PRAGMA journal_mode
