-- Own partitions that nobody owns or whose time is over, where the epoch is the one that was seen; which they are.
-- KEYS: meta partitions
local at, taken = now(), {}
for i = 3, #ARGV, 2 do
  local packed = call('HGET', partitions, ARGV[i])
  local held_by = packed and unpacked(packed) or { false, 0, false }
  local is_free = not held_by[1] or held_by[3] <= at
  if is_free and held_by[2] == tonumber(ARGV[i + 1]) then
    call('HSET', partitions, ARGV[i], pack({ ARGV[1], held_by[2] + 1, at + tonumber(ARGV[2]) }))
    taken[#taken + 1] = { ARGV[i], held_by[2] + 1 }
  end
end
return taken
