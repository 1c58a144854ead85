-- Sign on, or be heard again.
-- KEYS: meta members
local packed, at = call('HGET', members, ARGV[1]), now()
local started_at = packed and unpacked(packed)[3] or at
call('HSET', members, ARGV[1], pack({ ARGV[2], tonumber(ARGV[3]), started_at, at }))
return 1
