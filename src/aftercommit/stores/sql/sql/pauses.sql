-- What is paused: since when and until when, for how many microseconds it has been and would be.
SELECT kind, name, reason, paused_by, {read:paused_at}, {read:paused_until}, {since:paused_at}, {until:paused_until}
FROM {pause_table}
ORDER BY kind, name
