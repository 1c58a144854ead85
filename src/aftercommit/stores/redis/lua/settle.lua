-- Write outcomes and clear the leases, where owner and epoch still stand; tell the numbers of those where they do not.
-- KEYS: meta events ids rows free leased order retry dead dead_keys dead_at done failures
-- What is kept of failures comes first: their number, and for each the number of its outcome and the notes.
local deletes, at, refused = ARGV[1] == '1', now(), {}
local kept, first = tonumber(ARGV[2]), 4 + 2 * tonumber(ARGV[3])
local notes = {}
for i = 4, first - 1, 2 do
  notes[ARGV[i]] = ARGV[i + 1]
end
also_when_full()

local function note(position, owner, packed)
  local before = call('HGET', failures, position)
  local list = before and unpacked(before) or {}
  for _, each in ipairs(unpacked(packed)) do
    list[#list + 1] = { at, owner, unpack(each) }
  end
  while #list > kept do
    table.remove(list, 1)
  end
  call('HSET', failures, position, pack(list))
end

local finish = {}

function finish.done(row, position)
  call('ZREM', order, place(row, position))
  if deletes then
    forget(row, position)
  else
    row[STATUS], row[DONE_AT], row[LAST_ERROR], row[ABANDONED] = DONE, at, false, 0
    write(position, row)
    call('ZADD', done, at, position)
  end
end

function finish.dead(row, position, counted, err)
  row[STATUS], row[DONE_AT], row[LAST_ERROR], row[ABANDONED] = DEAD, at, err, 0
  row[ATTEMPTS] = row[ATTEMPTS] + counted
  write(position, row)
  call('ZREM', order, place(row, position))
  call('ZADD', dead, position, position)
  call('ZADD', dead_keys, 0, place(row, position))
  call('ZADD', dead_at, at, position)
end

local function wait(row, position)
  write(position, row)
  call('ZADD', free, row[AVAILABLE_AT], position)
  if row[STATUS] == RETRY then
    call('SADD', retry, position)
  end
end

-- The row's own count decides whether there is another attempt.
function finish.retry(row, position, delay, err, limit)
  if limit and row[ATTEMPTS] + 1 >= limit then
    return finish.dead(row, position, 1, err)
  end
  row[STATUS], row[ATTEMPTS], row[AVAILABLE_AT], row[LAST_ERROR] = RETRY, row[ATTEMPTS] + 1, at + delay, err
  row[ABANDONED] = 0
  wait(row, position)
end

function finish.defer(row, position, delay)
  row[STATUS], row[AVAILABLE_AT], row[ABANDONED] = RETRY, at + delay, 0
  wait(row, position)
end

-- 1: it was started; -1: a suspect that was not; -2: and that was counted all the same.
function finish.release(row, position, how)
  row[EPOCH] = row[EPOCH] + 1
  if how == 1 then
    row[ABANDONED] = 0
  elseif how < 0 then
    row[OWNER] = '' -- as nobody's is, so that whoever claims it takes it over
    row[ABANDONED] = row[ABANDONED] - (how == -2 and 1 or 0)
  end
  wait(row, position)
end

for i = first, #ARGV, 9 do
  local row, position = held(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  if row then
    call('ZREM', leased, position)
    if row[STATUS] == RETRY then
      call('SREM', retry, position)
    end
    unlock(row)
    if ARGV[i + 7] ~= '' then
      row[DONE_HANDLERS] = ARGV[i + 7]
    end
    finish[ARGV[i + 4]](row, position, tonumber(ARGV[i + 5]), ARGV[i + 6], tonumber(ARGV[i + 8]))
    local packed = notes[tostring((i - first) / 9)]
    if packed then
      note(position, ARGV[i + 2], packed)
    end
  else
    refused[#refused + 1] = (i - first) / 9
  end
end
return refused
