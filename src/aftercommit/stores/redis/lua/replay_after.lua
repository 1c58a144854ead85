-- Make the next dead rows behind a position new again that people ask for, up to a limit; where to go on, and how many.
-- KEYS: meta events rows free order dead dead_keys dead_at
local where, limit, page = unpacked(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local found, count, at = call('ZRANGEBYSCORE', dead, '(' .. ARGV[1], '+inf', 'LIMIT', 0, page), 0, now()
for _, position in ipairs(found) do
  local row = read(position)
  if matches(row, position, where) then
    replay(row, position, at)
    count = count + 1
    if count == limit then
      return { position, count }
    end
  end
end
return { #found == page and found[page] or false, count }
