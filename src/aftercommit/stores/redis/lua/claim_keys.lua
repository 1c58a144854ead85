-- Lease the runs of lanes: of each the unbroken prefix that is due and free, each row under a new epoch.
-- KEYS: meta events rows free leased order dead_keys
local owner, run, lasts, at = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), now()
local stops, blocks, reach = ARGV[4] == '1', ARGV[5] == '1', tonumber(ARGV[6])
local reply = { at }
also_when_full()

local function run_of(lane)
  local grave, found = blocks and lane_of(dead_keys, lane, 1)[1], {}
  for _, position in ipairs(lane_of(order, lane, stops and run or reach)) do
    if grave and position > grave then
      break
    end
    local row = read(position)
    local is_leased, is_due = row[LEASE_UNTIL] and row[LEASE_UNTIL] > at, due_at(row) <= at
    if stops and (is_leased or not is_due) then
      break
    elseif is_leased then
      return {} -- one at a time
    elseif is_due and #found < run then
      found[#found + 1] = { position, row }
    end
  end
  return found
end

for i = 7, #ARGV do
  for _, each in ipairs(run_of(ARGV[i])) do
    local position, row = each[1], each[2]
    local is_takeover = row[OWNER] and row[OWNER] ~= owner
    lease(row, position, owner, at, lasts)
    reply[#reply + 1] = { position, pack(row), envelope_of(row, position), is_takeover and 1 or 0 }
  end
end
return reply
