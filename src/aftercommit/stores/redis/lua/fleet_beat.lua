-- Be heard, and prolong what is owned; what that is, with the epochs. Nothing for who is no member.
-- KEYS: meta members partitions
local packed, at = call('HGET', members, ARGV[1]), now()
if not packed then
  return false
end
local member = unpacked(packed)
member[4] = at
call('HSET', members, ARGV[1], pack(member))
local all, owned = call('HGETALL', partitions), {}
for i = 1, #all, 2 do
  local held_by = unpacked(all[i + 1])
  if held_by[1] == ARGV[1] then
    held_by[3] = at + tonumber(ARGV[2])
    call('HSET', partitions, all[i], pack(held_by))
    owned[#owned + 1] = { all[i], held_by[2] }
  end
end
return owned
