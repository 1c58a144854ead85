-- Pause a handler or an event type, for some microseconds, until a time or for ever; again tells it anew.
-- KEYS: meta pauses
local at = now()
local ends = ARGV[5] ~= '' and tonumber(ARGV[5]) or ARGV[4] ~= '' and at + tonumber(ARGV[4]) or false
call('HSET', pauses, ARGV[1], pack({ ARGV[2], ARGV[3], at, ends }))
return 1
