-- Make an outbox where there is none, with these facts; tell the facts of the one that is there.
-- KEYS: meta
if ARGV[1] == '1' and redis.call('EXISTS', meta) == 0 then
  redis.call('HSET', meta, unpack(ARGV, 2))
end
return redis.call('HGETALL', meta)
