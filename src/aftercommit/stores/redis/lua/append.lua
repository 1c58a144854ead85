-- Write rows in their order, all or none. One that is there already is an error.
-- KEYS: meta events ids rows free leased order
-- The user's own commands come first: what fails among them keeps the events from being written.
local WIDTH, at = 10, now()
local known, commands = {}, tonumber(ARGV[1])
local first = 2
for _ = 1, commands do
  first = first + 1 + tonumber(ARGV[first])
end
local last = tonumber(call('HGET', meta, 'position') or 0)
local positions = {}
for i = first, #ARGV, WIDTH do
  local id, handler, envelope = ARGV[i], ARGV[i + 1], ARGV[i + 5]
  local event = known[id]
  if not event then
    local packed = call('HGET', ids, id)
    event = { places = packed and unpacked(packed) or {}, is_new = not packed }
    event.envelope = packed and call('HGET', events, id) or envelope
    known[id] = event
  end
  for k = 1, #event.places, 2 do
    if event.places[k] == handler then
      local whose = handler ~= '' and ' for the handler ' .. handler or ''
      return redis.error_reply('DUPLICATE event ' .. id .. whose)
    end
  end
  last = last + 1
  positions[i] = string.format('%016.0f', last)
  event.places[#event.places + 1] = handler
  event.places[#event.places + 1] = positions[i]
end

local from = 2
for number = 1, commands do
  local reply = redis.pcall(unpack(ARGV, from + 1, from + tonumber(ARGV[from])))
  if type(reply) == 'table' and reply.err then
    return { 'FAILED', number, reply.err }
  end
  from = from + 1 + tonumber(ARGV[from])
end

call('HSET', meta, 'position', string.format('%.0f', last))
for i = first, #ARGV, WIDTH do
  local position, available, owner = positions[i], ARGV[i + 6], ARGV[i + 8]
  if available == '' then
    available = at + tonumber(ARGV[i + 7])
  elseif math.abs(tonumber(available)) < 2 ^ 53 then
    available = tonumber(available) -- what is beyond stays text, and so exact
  end
  local row = {
    ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], NEW, 0, 0, at, available, 0,
    false, false, false, false, false, false, known[ARGV[i]].envelope ~= ARGV[i + 5],
  }
  if row[HAS_OWN] then
    call('HSET', events, own_name(row, position), ARGV[i + 5])
  end
  if owner ~= '' then
    row[OWNER], row[LOCKED_AT], row[LEASE_UNTIL], row[EPOCH] = owner, at, at + tonumber(ARGV[i + 9]), 1
    call('ZADD', leased, row[LEASE_UNTIL], position)
  else
    call('ZADD', free, available, position)
  end
  write(position, row)
  call('ZADD', order, 0, place(row, position))
end
for id, event in pairs(known) do
  call('HSET', ids, id, pack(event.places))
  if event.is_new then
    call('HSET', events, id, event.envelope)
  end
end
return redis.status_reply('OK')
