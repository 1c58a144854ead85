-- From now on the outbox keeps the order that is said here.
-- KEYS: meta
redis.call('HSET', meta, 'ordered', ARGV[1], 'on_dead', ARGV[2])
return 1
