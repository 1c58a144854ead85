-- Whom unfinished rows wait for, and how many: a page of rows, and where the next one begins.
-- KEYS: meta rows order
local page, by_names = tonumber(ARGV[2]), {}
local found = call('ZRANGEBYLEX', order, ARGV[1] == '' and '-' or '(' .. ARGV[1], '+', 'LIMIT', 0, page)
local reply = { #found == page and found[page] or false }
for _, place in ipairs(found) do
  local row = read(string.sub(place, -16))
  local names = pack({ row[HANDLER_ID], row[AGGREGATE_TYPE], row[EVENT_TYPE] })
  local group = by_names[names]
  if not group then
    group = { row[HANDLER_ID], row[AGGREGATE_TYPE], row[EVENT_TYPE], 0 }
    by_names[names], reply[#reply + 1] = group, group
  end
  group[4] = group[4] + 1
end
return reply
