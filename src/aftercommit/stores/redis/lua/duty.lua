-- Have a duty, if it is still as it was seen; who has it now.
-- KEYS: meta
local field = 'duty ' .. ARGV[1]
local held_by = call('HGET', meta, field) or ''
if held_by == ARGV[3] then
  call('HSET', meta, field, ARGV[2])
  held_by = ARGV[2]
end
return held_by
