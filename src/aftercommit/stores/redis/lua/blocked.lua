-- Lanes that have a dead row, each with its first one, in order of position: a page, and where the next one begins.
-- KEYS: meta events rows order dead dead_keys
local limit, page = tonumber(ARGV[2]), tonumber(ARGV[3])
local found = call('ZRANGEBYSCORE', dead, '(' .. ARGV[1], '+inf', 'LIMIT', 0, page)
local reply = { #found == page and found[page] or false }
for _, position in ipairs(found) do
  if #reply > limit then
    break
  end
  local row = read(position)
  if lane_of(dead_keys, row[LANE], 1)[1] == position then
    -- One without a key counts when other rows of its event wait behind it.
    local waiting = call('ZRANGEBYLEX', order, '(' .. place(row, position), '(' .. row[LANE] .. '\1', 'LIMIT', 0, 1)
    reply[#reply + 1] = { position, pack(row), envelope_of(row, position), #waiting }
  end
end
return reply
