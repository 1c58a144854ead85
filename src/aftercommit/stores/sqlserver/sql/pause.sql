-- Pause a handler or an event type; again tells it anew.
UPDATE {pause_table}
SET reason = :reason, paused_by = :paused_by, paused_at = {now},
    paused_until = COALESCE(:paused_until, {now_plus:lasts})
WHERE kind = :kind AND name = :name;
INSERT INTO {pause_table} (kind, name, reason, paused_by, paused_at, paused_until)
SELECT :kind, :name, :reason, :paused_by, {now}, COALESCE(:paused_until, {now_plus:lasts})
WHERE NOT EXISTS (SELECT 1 FROM {pause_table} WHERE kind = :kind AND name = :name)
