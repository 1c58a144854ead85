-- Dead rows behind a position, in its order, that people ask for: a page of them, and where the next page begins.
-- KEYS: meta events rows dead
local where, limit, page = unpacked(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local found = call('ZRANGEBYSCORE', dead, '(' .. ARGV[1], '+inf', 'LIMIT', 0, page)
local reply = { #found == page and found[page] or false, 0 }
for _, position in ipairs(found) do
  local row = read(position)
  if matches(row, position, where) then
    reply[2] = reply[2] + 1
    if reply[2] <= limit then
      reply[#reply + 1] = { position, pack(row), envelope_of(row, position) }
    end
  end
end
return reply
