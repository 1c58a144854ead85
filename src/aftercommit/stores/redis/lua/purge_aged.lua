-- Delete the oldest rows whatever their status, up to a limit, as long as they are older than that; how many, and
-- whether there may be more. Positions are tried one by one from the first that may be there, so many of them at most.
-- KEYS: meta events ids rows free leased order retry dead dead_keys dead_at done failures
local before, limit, tries = now() - tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local last = tonumber(call('HGET', meta, 'position') or 0)
local first = tonumber(call('HGET', meta, 'first') or 1)
local count, is_over, at = 0, false, first
also_when_full()
while count < limit and at <= last and tries > 0 do
  local position = string.format('%016.0f', at)
  local row = read(position)
  if row then
    if row[CREATED_AT] > before then
      is_over = true
      break
    end
    call('ZREM', free, position)
    call('ZREM', leased, position)
    call('ZREM', order, place(row, position))
    call('SREM', retry, position)
    call('ZREM', done, position)
    out_of_dead(row, position)
    forget(row, position)
    count = count + 1
  end
  at, tries = at + 1, tries - 1
end
if at > first then
  call('HSET', meta, 'first', string.format('%.0f', at))
end
return { count, not is_over and at <= last and 1 or 0 }
