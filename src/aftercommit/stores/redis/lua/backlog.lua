-- Unfinished rows by status, dead ones, leases that stand, and for how long the oldest row has been due.
-- KEYS: meta rows free leased retry dead
local at, retries = now(), call('SCARD', retry)
local unfinished = call('ZCARD', free) + call('ZCARD', leased)
local oldest = call('ZRANGE', free, 0, 0, 'WITHSCORES')[2]
oldest = oldest and tonumber(oldest) or at
-- Of those that are held, the ones whose leases end first.
for _, position in ipairs(call('ZRANGE', leased, 0, tonumber(ARGV[1]) - 1)) do
  oldest = math.min(oldest, due_at(read(position)))
end
local standing = call('ZCOUNT', leased, '(' .. string.format('%.0f', at), '+inf')
return { unfinished - retries, retries, call('ZCARD', dead), standing, math.max(0, at - oldest), call('HLEN', rows) }
