-- Pause it no more.
DELETE FROM {pause_table} WHERE kind = :kind AND name = :name
