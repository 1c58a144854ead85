-- Make the next dead rows behind a position new again, of these types, up to a limit; where to go on, and how many.
-- KEYS: meta rows free order dead dead_keys dead_at
local event_type, aggregate_type, limit, page = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local found, count, at = call('ZRANGEBYSCORE', dead, '(' .. ARGV[1], '+inf', 'LIMIT', 0, page), 0, now()
for _, position in ipairs(found) do
  local row = read(position)
  if (event_type == '' or event_type == row[EVENT_TYPE])
    and (aggregate_type == '' or aggregate_type == row[AGGREGATE_TYPE]) then
    replay(row, position, at)
    count = count + 1
    if count == limit then
      return { position, count }
    end
  end
end
return { #found == page and found[page] or false, count }
