-- Pause it no more; 0 when it was not paused, or was over.
-- KEYS: meta pauses
local packed = call('HGET', pauses, ARGV[1])
local ends = packed and unpacked(packed)[4]
call('HDEL', pauses, ARGV[1])
return packed and (not ends or ends > now()) and 1 or 0
