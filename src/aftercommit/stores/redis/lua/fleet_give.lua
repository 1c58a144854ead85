-- Own these partitions no more, where owner and epoch still stand; the epochs are raised.
-- KEYS: meta partitions
local at = now()
for i = 2, #ARGV, 2 do
  local packed = call('HGET', partitions, ARGV[i])
  local held_by = packed and unpacked(packed)
  if held_by and held_by[1] == ARGV[1] and held_by[2] == tonumber(ARGV[i + 1]) then
    call('HSET', partitions, ARGV[i], pack({ false, held_by[2] + 1, at }))
  end
end
return 1
