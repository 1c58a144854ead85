-- How many rows are done, up to a limit; 0: all of them.
-- KEYS: meta done
local count, limit = call('ZCARD', done), tonumber(ARGV[1])
return limit > 0 and math.min(count, limit) or count
