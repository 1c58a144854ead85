-- Whether the schema table is there.
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = :name
