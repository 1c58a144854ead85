-- What the scripts share; it stands before each of them, behind the names of its keys. What a name is for:
--   meta      facts of the outbox, and the last position          events    event id -> envelope, for all its rows
--   ids       event id -> {handler id, position, ...}             rows      position -> the row, as fields below
--   free      unleased rows by due time                           leased    leased rows by the end of their lease
--   order     unfinished rows by lane and position                retry     unfinished rows that were tried before
--   dead      dead rows by position, dead_keys by lane, dead_at by the time of their end
--   done      done rows by the time of their end                  failures  position -> the last failures of a row
--   members, partitions: the fleet
--   pauses    handler:id or type:name -> reason, by whom, since when, until when
-- A lane is a partition in three digits and a key; a position has sixteen digits, so that text sorts as numbers do.
local EVENT_ID, HANDLER_ID, LANE, EVENT_TYPE, AGGREGATE_TYPE, STATUS, ATTEMPTS, ABANDONED = 1, 2, 3, 4, 5, 6, 7, 8
local CREATED_AT, AVAILABLE_AT, EPOCH, OWNER, LOCKED_AT, LEASE_UNTIL = 9, 10, 11, 12, 13, 14
local DONE_AT, LAST_ERROR, DONE_HANDLERS, HAS_OWN = 15, 16, 17, 18
local NEW, DONE, RETRY, DEAD = 0, 1, 2, 3

local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack

local layout = call('HGET', meta, 'layout')
if layout ~= LAYOUT then
  return redis.error_reply(layout and 'NEWERLAYOUT ' .. layout or 'NOLAYOUT')
end

local function now()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

local function read(position)
  local packed = call('HGET', rows, position)
  return packed and unpacked(packed)
end

local function write(position, row)
  call('HSET', rows, position, pack(row))
end

local function place(row, position)
  return row[LANE] .. '\0' .. position
end

-- Rows of one event share its envelope. One that was written later, with another one under the same id, has its own.
local function own_name(row, position)
  return row[EVENT_ID] .. '\0' .. position
end

local function envelope_of(row, position)
  return call('HGET', events, row[HAS_OWN] and own_name(row, position) or row[EVENT_ID])
end

local function due_at(row)
  return tonumber(row[AVAILABLE_AT])
end

-- A full server refuses commands that may grow, unless the script has written before. What ends deliveries must go on.
local function also_when_full()
  call('HDEL', rows, '')
end

local function position_of(event_id, handler_id)
  local packed = call('HGET', ids, event_id)
  local places = packed and unpacked(packed) or {}
  for i = 1, #places, 2 do
    if places[i] == handler_id then
      return places[i + 1]
    end
  end
end

-- The row, where owner and epoch of a lease still stand on it.
local function held(event_id, handler_id, owner, epoch)
  local position = position_of(event_id, handler_id)
  local row = position and read(position)
  if row and (row[STATUS] == NEW or row[STATUS] == RETRY) and row[OWNER] == owner and row[EPOCH] == tonumber(epoch) then
    return row, position
  end
end

local function lease(row, position, owner, at, lasts)
  row[OWNER], row[LOCKED_AT], row[LEASE_UNTIL], row[EPOCH] = owner, at, at + lasts, row[EPOCH] + 1
  call('ZREM', free, position)
  call('ZADD', leased, row[LEASE_UNTIL], position)
  write(position, row)
end

local function unlock(row)
  row[OWNER], row[LOCKED_AT], row[LEASE_UNTIL] = false, false, false
end

local function out_of_dead(row, position)
  call('ZREM', dead, position)
  call('ZREM', dead_at, position)
  call('ZREM', dead_keys, place(row, position))
end

-- A row is no more; with the last one of its event the envelope goes, too.
local function forget(row, position)
  call('HDEL', rows, position)
  if row[EPOCH] > 1 then -- under its first one nothing has failed before
    call('HDEL', failures, position)
  end
  if row[HAS_OWN] then
    call('HDEL', events, own_name(row, position))
  end
  local places, left = unpacked(call('HGET', ids, row[EVENT_ID])), {}
  for i = 1, #places, 2 do
    if places[i + 1] ~= position then
      left[#left + 1] = places[i]
      left[#left + 1] = places[i + 1]
    end
  end
  if #left > 0 then
    call('HSET', ids, row[EVENT_ID], pack(left))
  else
    call('HDEL', ids, row[EVENT_ID])
    call('HDEL', events, row[EVENT_ID])
  end
end

-- As it was written, under a new epoch.
local function replay(row, position, at)
  out_of_dead(row, position)
  row[STATUS], row[ATTEMPTS], row[ABANDONED], row[AVAILABLE_AT], row[EPOCH] = NEW, 0, 0, at, row[EPOCH] + 1
  row[DONE_AT], row[LAST_ERROR], row[DONE_HANDLERS] = false, false, false
  unlock(row)
  write(position, row)
  call('ZADD', free, at, position)
  call('ZADD', order, 0, place(row, position))
end

-- Whether people ask for a row (EventFilter). What only the envelope knows is looked up when it matters.
local function matches(row, position, where)
  if (where.status and where.status ~= row[STATUS])
    or (where.event_type and where.event_type ~= row[EVENT_TYPE])
    or (where.aggregate_type and where.aggregate_type ~= row[AGGREGATE_TYPE])
    or (where.handler_id and where.handler_id ~= row[HANDLER_ID])
    or (where.error and not (row[LAST_ERROR] and string.find(row[LAST_ERROR], where.error, 1, true)))
    or (where.older_than and row[CREATED_AT] >= now() - where.older_than) then
    return false
  end
  if not (where.aggregate_id or where.tenant_id or where.key) then
    return true
  end
  local packed = envelope_of(row, position)
  local kept = packed and unpacked(packed) or {}
  return (not where.aggregate_id or where.aggregate_id == kept[6])
    and (not where.tenant_id or where.tenant_id == kept[7])
    and (not where.key or where.key == kept[8])
end

-- The positions of a lane, first ones first.
local function lane_of(index, lane, limit)
  local found = call('ZRANGEBYLEX', index, '[' .. lane .. '\0', '(' .. lane .. '\1', 'LIMIT', 0, limit)
  for i = 1, #found do
    found[i] = string.sub(found[i], -16)
  end
  return found
end
