-- Free rows, or leased ones, behind a place in their index that people ask for: a page of them, and where the next begins.
-- KEYS: meta events rows free leased
local where, index = unpacked(ARGV[1]), ARGV[2] == 'leased' and leased or free
local score, last, limit, page = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local start = 0
if score ~= '' then
  local stop = call('ZCOUNT', index, '-inf', score)
  start = call('ZCOUNT', index, '-inf', '(' .. score)
  while start < stop do
    local middle = math.floor((start + stop) / 2)
    if call('ZRANGE', index, middle, middle)[1] <= last then
      start = middle + 1
    else
      stop = middle
    end
  end
end

local found = call('ZRANGE', index, start, start + page - 1, 'WITHSCORES')
local reply = { false, false, 0 }
if #found == 2 * page then
  reply[1], reply[2] = found[#found], found[#found - 1]
end
for i = 1, #found, 2 do
  local position = found[i]
  local row = read(position)
  if matches(row, position, where) then
    reply[3] = reply[3] + 1
    if reply[3] <= limit then
      reply[#reply + 1] = { position, pack(row), envelope_of(row, position) }
    end
  end
end
return reply
