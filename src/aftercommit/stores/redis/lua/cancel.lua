-- End unfinished rows of an event that nobody holds, of one handler or of all, without delivering them.
-- KEYS: meta events ids rows free leased order retry done failures
local packed, count, at = call('HGET', ids, ARGV[1]), 0, now()
local places = packed and unpacked(packed) or {}
also_when_full()
for i = 1, #places, 2 do
  local position = places[i + 1]
  local row = read(position)
  local is_free = not row[OWNER] or not row[LEASE_UNTIL] or row[LEASE_UNTIL] <= at
  if (row[STATUS] == NEW or row[STATUS] == RETRY) and is_free and (ARGV[2] == '0' or places[i] == ARGV[3]) then
    call('ZREM', free, position)
    call('ZREM', leased, position)
    call('ZREM', order, place(row, position))
    call('SREM', retry, position)
    if ARGV[4] == '1' then
      forget(row, position)
    else
      unlock(row)
      row[STATUS], row[DONE_AT], row[LAST_ERROR], row[ABANDONED] = DONE, at, 'cancelled', 0
      row[EPOCH] = row[EPOCH] + 1
      write(position, row)
      call('ZADD', done, at, position)
    end
    count = count + 1
  end
end
return count
