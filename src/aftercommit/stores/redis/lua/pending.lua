-- How many unfinished rows each partition has, in order of their numbers.
-- KEYS: meta order
local counts = {}
for number = 0, tonumber(ARGV[1]) - 1 do
  counts[number + 1] =
    call('ZLEXCOUNT', order, '[' .. string.format('%03d', number), '(' .. string.format('%03d', number + 1))
end
return counts
