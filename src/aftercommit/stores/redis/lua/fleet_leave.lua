-- Sign off: be no member, own nothing; the epochs are raised.
-- KEYS: meta members partitions
local at, all = now(), call('HGETALL', partitions)
call('HDEL', members, ARGV[1])
for i = 1, #all, 2 do
  local held_by = unpacked(all[i + 1])
  if held_by[1] == ARGV[1] then
    call('HSET', partitions, all[i], pack({ false, held_by[2] + 1, at }))
  end
end
return 1
