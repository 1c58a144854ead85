-- Every row of an event.
-- KEYS: meta events ids rows
local packed, reply = call('HGET', ids, ARGV[1]), {}
local places = packed and unpacked(packed) or {}
for i = 1, #places, 2 do
  local row = read(places[i + 1])
  reply[#reply + 1] = { places[i + 1], pack(row), envelope_of(row, places[i + 1]) }
end
return reply
