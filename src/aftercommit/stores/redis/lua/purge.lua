-- Delete rows that ended longer ago than that, done ones or dead ones, oldest first, up to a limit.
-- KEYS: meta events ids rows dead dead_keys dead_at done failures
local index = ARGV[1] == 'dead' and dead_at or done
local before = string.format('%.0f', now() - tonumber(ARGV[2]))
local old = call('ZRANGEBYSCORE', index, '-inf', before, 'LIMIT', 0, tonumber(ARGV[3]))
also_when_full()
for _, position in ipairs(old) do
  local row = read(position)
  if index == done then
    call('ZREM', done, position)
  else
    out_of_dead(row, position)
  end
  forget(row, position)
end
return #old
