-- Rows before a position that people ask for, the last ones first, and before which position to go on. Positions are
-- tried one by one, so many of them at most.
-- KEYS: meta events rows
local where, limit, tries = unpacked(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local at = ARGV[2] ~= '' and tonumber(ARGV[2]) - 1 or tonumber(call('HGET', meta, 'position') or 0)
local first = tonumber(call('HGET', meta, 'first') or 1)
local reply = { false }
while at >= first and tries > 0 and #reply <= limit do
  local position = string.format('%016.0f', at)
  local row = read(position)
  if row and matches(row, position, where) then
    reply[#reply + 1] = { position, pack(row), envelope_of(row, position) }
  end
  at, tries = at - 1, tries - 1
end
if at >= first then
  reply[1] = string.format('%.0f', at + 1)
end
return reply
