-- Make done rows of an event new again, of one handler or of all.
-- KEYS: meta ids rows free order dead dead_keys dead_at done
local packed, count, at = call('HGET', ids, ARGV[1]), 0, now()
local places = packed and unpacked(packed) or {}
for i = 1, #places, 2 do
  local row = read(places[i + 1])
  if row[STATUS] == DONE and (ARGV[2] == '0' or places[i] == ARGV[3]) then
    call('ZREM', done, places[i + 1])
    replay(row, places[i + 1], at)
    count = count + 1
  end
end
return count
