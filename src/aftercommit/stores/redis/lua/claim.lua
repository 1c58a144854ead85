-- Lease up to a limit of rows that are due and free, or whose lease has passed, each under a new epoch.
-- KEYS: meta events rows free leased
local owner, limit, lasts, at = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), now()
local latest, floor_at, floor_position = at - tonumber(ARGV[4]), ARGV[5], ARGV[6]
local taken = {}

local function take(position)
  local row = read(position)
  if due_at(row) <= at and row[CREATED_AT] <= latest then
    taken[#taken + 1] = { position, row }
  end
end

for _, position in ipairs(call('ZRANGEBYSCORE', leased, '-inf', at, 'LIMIT', 0, limit)) do
  take(position)
end

-- Where to begin: behind the row at which an earlier claim stopped, among all that fell due together with it.
local start = 0
if floor_at ~= '' then
  local stop = call('ZCOUNT', free, '-inf', floor_at)
  start = call('ZCOUNT', free, '-inf', '(' .. floor_at)
  while start < stop do
    local middle = math.floor((start + stop) / 2)
    if call('ZRANGE', free, middle, middle)[1] <= floor_position then
      start = middle + 1
    else
      stop = middle
    end
  end
end

-- Rows that are passed over because they are too young count as seen; the next claim goes on behind them.
local seen, is_end = 0, false
while #taken < limit and not is_end and seen < 10 * limit do
  local page = call('ZRANGE', free, start + seen, start + seen + limit - 1, 'WITHSCORES')
  is_end = #page < 2 * limit
  for i = 1, #page, 2 do
    if tonumber(page[i + 1]) > at then
      is_end = true
      break
    end
    if #taken == limit then
      break
    end
    take(page[i])
    seen, floor_position, floor_at = seen + 1, page[i], page[i + 1]
  end
end

local reply = { at, false, false, floor_position }
if not is_end or #taken == limit then
  reply[3] = floor_at ~= '' and floor_at or '-inf'
else
  local later = call('ZRANGEBYSCORE', free, '(' .. string.format('%.0f', at), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  reply[2] = later[2] and tonumber(later[2]) - at or false
end
if #taken > 0 then
  also_when_full()
end
for _, each in ipairs(taken) do
  local position, row = each[1], each[2]
  local is_takeover = row[OWNER] and row[OWNER] ~= owner
  lease(row, position, owner, at, lasts)
  reply[#reply + 1] = { position, pack(row), envelope_of(row, position), is_takeover and 1 or 0 }
end
return reply
