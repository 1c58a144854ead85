-- End dead rows of an event as done, of one handler or of all, with a reason.
-- KEYS: meta ids rows dead dead_keys dead_at done
local packed, count, at = call('HGET', ids, ARGV[1]), 0, now()
local places = packed and unpacked(packed) or {}
for i = 1, #places, 2 do
  local position = places[i + 1]
  local row = read(position)
  if row[STATUS] == DEAD and (ARGV[2] == '0' or places[i] == ARGV[3]) then
    out_of_dead(row, position)
    row[STATUS], row[DONE_AT], row[LAST_ERROR], row[EPOCH] = DONE, at, ARGV[4], row[EPOCH] + 1
    write(position, row)
    call('ZADD', done, at, position)
    count = count + 1
  end
end
return count
