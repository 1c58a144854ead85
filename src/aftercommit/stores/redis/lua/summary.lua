-- A page of an index by event type, handler and status, and for how long the first of each has been due; and how many rows.
-- KEYS: meta rows free leased dead
local index = ({ free = free, leased = leased, dead = dead })[ARGV[1]]
local found, at = call('ZRANGE', index, ARGV[2], ARGV[2] + ARGV[3] - 1), now()
local groups, reply = {}, { #found }
for _, position in ipairs(found) do
  local row = read(position)
  local name = row[EVENT_TYPE] .. '\0' .. row[HANDLER_ID] .. '\0' .. row[STATUS]
  local group = groups[name]
  if not group then
    group = { row[EVENT_TYPE], row[HANDLER_ID], row[STATUS], 0, math.huge }
    groups[name] = group
  end
  group[4], group[5] = group[4] + 1, math.min(group[5], due_at(row))
end
for _, group in pairs(groups) do
  group[5] = math.floor(at - group[5])
  reply[#reply + 1] = group
end
return reply
