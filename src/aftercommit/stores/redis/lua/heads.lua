-- The first unfinished row of each lane, a limit of them at most, and why it can be claimed or not. Leases nothing.
-- KEYS: meta rows order dead_keys
local limit, stops, blocks, reach, after = tonumber(ARGV[1]), ARGV[2] == '1', ARGV[3] == '1', tonumber(ARGV[4]), ARGV[5]
local at, heads = now(), {}

-- What lies before the first dead row, where that blocks.
local function is_blocked(position, grave)
  return grave and position > grave
end

-- Where rows that are not due are passed over, all that lies in front counts, and not the head alone.
local function passing(lane, grave)
  local soonest, leased_for
  for _, position in ipairs(lane_of(order, lane, reach)) do
    if is_blocked(position, grave) then
      break
    end
    local row = read(position)
    if row[LEASE_UNTIL] and row[LEASE_UNTIL] > at then
      leased_for = math.max(leased_for or 0, row[LEASE_UNTIL] - at)
    end
    soonest = math.min(soonest or due_at(row), due_at(row))
  end
  return leased_for, soonest
end

local function look(lane, position)
  local grave = blocks and lane_of(dead_keys, lane, 1)[1]
  if is_blocked(position, grave) then
    return { lane, 'blocked', 0 }
  end
  local row = read(position)
  local leased_for = row[LEASE_UNTIL] and row[LEASE_UNTIL] > at and row[LEASE_UNTIL] - at
  local due = due_at(row)
  if not stops then
    leased_for, due = passing(lane, grave)
  end
  if leased_for then
    return { lane, 'leased', leased_for }
  end
  return due > at and { lane, 'later', due - at } or { lane, 'ready', 0 }
end

for i = 6, #ARGV do
  local partition = ARGV[i]
  local behind = '[' .. partition
  if i == 6 and after ~= '' then
    behind = '(' .. partition .. after .. '\1'
  end
  while #heads < limit do
    local found = call('ZRANGEBYLEX', order, behind, '(' .. partition .. '\255', 'LIMIT', 0, 1)[1]
    if not found then
      break
    end
    local lane = string.sub(found, 1, -18)
    heads[#heads + 1] = look(lane, string.sub(found, -16))
    behind = '(' .. lane .. '\1'
  end
end
return heads
