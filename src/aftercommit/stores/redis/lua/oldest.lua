-- When the first unfinished row of each lane was written, lane by lane behind one: a page of them.
-- KEYS: meta rows order
local reply, behind = { now() }, ARGV[1] ~= '' and '(' .. ARGV[1] .. '\1' or '-'
for _ = 1, tonumber(ARGV[2]) do
  local found = call('ZRANGEBYLEX', order, behind, '+', 'LIMIT', 0, 1)[1]
  if not found then
    break
  end
  local lane = string.sub(found, 1, -18)
  reply[#reply + 1] = { lane, read(string.sub(found, -16))[CREATED_AT] }
  behind = '(' .. lane .. '\1'
end
return reply
