-- Write outcomes and clear the leases, where owner and epoch still stand; tell the numbers of those where they do not.
-- KEYS: meta events ids rows free leased order retry dead dead_keys dead_at done
local deletes, at, refused = ARGV[1] == '1', now(), {}
also_when_full()

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

for i = 2, #ARGV, 9 do
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
  else
    refused[#refused + 1] = (i - 2) / 9
  end
end
return refused
