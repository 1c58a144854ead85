-- A page of rows that were put off until a time that is near: those of a type and for a handler id are due now. How
-- many there were, and how many are.
-- KEYS: meta rows free
local at, count = now(), 0
local found = call('ZRANGEBYSCORE', free, '(' .. string.format('%.0f', at), string.format('%.0f', at + ARGV[1]),
  'LIMIT', ARGV[6], ARGV[7])
for _, position in ipairs(found) do
  local row = read(position)
  if row[STATUS] == RETRY and (ARGV[2] == '0' or row[EVENT_TYPE] == ARGV[3])
    and (ARGV[4] == '0' or row[HANDLER_ID] == ARGV[5]) then
    row[AVAILABLE_AT] = at
    write(position, row)
    call('ZADD', free, at, position)
    count = count + 1
  end
end
return { #found, count }
