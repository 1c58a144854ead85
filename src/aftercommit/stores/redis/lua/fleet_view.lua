-- All members and all partitions that somebody ever owned, and the clock.
-- KEYS: meta members partitions
return { now(), call('HGETALL', members), call('HGETALL', partitions) }
