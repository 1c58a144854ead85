-- The tables whose names begin so.
SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, length(:name)) = :name
