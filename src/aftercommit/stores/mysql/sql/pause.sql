-- Pause a handler or an event type; again tells it anew.
INSERT INTO {pause_table} (kind, name, reason, paused_by, paused_at, paused_until)
VALUES (:kind, :name, :reason, :paused_by, {now}, COALESCE(:paused_until, {now_plus:lasts}))
ON DUPLICATE KEY UPDATE reason = :reason, paused_by = :paused_by, paused_at = {now},
  paused_until = COALESCE(:paused_until, {now_plus:lasts})
