-- What is over need not be kept.
DELETE FROM {pause_table} WHERE paused_until <= {now}
