"""SQLite, the embedded default: one file, WAL, every commit on disk before it returns."""
