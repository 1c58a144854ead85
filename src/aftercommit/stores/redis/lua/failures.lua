-- The failures of an event's rows that are kept, of one handler or of all.
-- KEYS: meta ids failures
local packed, reply = call('HGET', ids, ARGV[1]), {}
local places = packed and unpacked(packed) or {}
for i = 1, #places, 2 do
  if ARGV[2] == '0' or places[i] == ARGV[3] then
    reply[#reply + 1] = { places[i], call('HGET', failures, places[i + 1]) }
  end
end
return reply
