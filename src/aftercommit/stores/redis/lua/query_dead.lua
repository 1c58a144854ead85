-- Dead rows behind a position, in its order, of these types: a page of them, and where the next page begins.
-- KEYS: meta events rows dead
local event_type, aggregate_type, limit, page = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local found = call('ZRANGEBYSCORE', dead, '(' .. ARGV[1], '+inf', 'LIMIT', 0, page)
local reply = { #found == page and found[page] or false, 0 }
for _, position in ipairs(found) do
  local row = read(position)
  if (event_type == '' or event_type == row[EVENT_TYPE])
    and (aggregate_type == '' or aggregate_type == row[AGGREGATE_TYPE]) then
    reply[2] = reply[2] + 1
    if reply[2] <= limit then
      reply[#reply + 1] = { position, pack(row), envelope_of(row, position) }
    end
  end
end
return reply
