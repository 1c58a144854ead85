-- How many done rows ended longer ago than that, up to a limit.
-- KEYS: meta done
local count = call('ZCOUNT', done, '-inf', '(' .. string.format('%.0f', now() - tonumber(ARGV[1])))
return math.min(count, tonumber(ARGV[2]))
