-- Pause a handler or an event type; again tells it anew.
INSERT INTO {pause_table} (kind, name, reason, paused_by, paused_at, paused_until)
VALUES (:kind, :name, :reason, :paused_by, {now}, coalesce(:paused_until, {now_plus:lasts}))
ON CONFLICT (kind, name) DO UPDATE
SET reason = excluded.reason, paused_by = excluded.paused_by, paused_at = excluded.paused_at,
    paused_until = excluded.paused_until
