-- Pause a handler or an event type; again tells it anew.
DELETE FROM {pause_table} WHERE kind = :kind AND name = :name;
INSERT INTO {pause_table} (kind, name, reason, paused_by, paused_at, paused_until)
VALUES (:kind, :name, :reason, :paused_by, {now}, COALESCE(:paused_until, {now_plus:lasts}))
