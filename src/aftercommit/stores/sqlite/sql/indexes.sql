-- The indexes whose names begin as the table's.
SELECT name, 1 FROM sqlite_master WHERE type = 'index' AND substr(name, 1, length(:name)) = :name
