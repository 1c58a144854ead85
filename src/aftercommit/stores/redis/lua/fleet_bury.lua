-- Remove members that were silent for longer than that, all but one; who they were.
-- KEYS: meta members
local before, all, buried = now() - tonumber(ARGV[1]), call('HGETALL', members), {}
for i = 1, #all, 2 do
  if all[i] ~= ARGV[2] and unpacked(all[i + 1])[4] < before then
    call('HDEL', members, all[i])
    buried[#buried + 1] = all[i]
  end
end
return buried
