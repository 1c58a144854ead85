-- Who holds leases: of each how many, how many that were over long ago, since when the first is over, and the oldest is
-- held. Those that end first are looked at, up to a limit.
-- KEYS: meta rows leased
local at, over_for, by_owner, reply = now(), tonumber(ARGV[1]), {}, {}
for _, position in ipairs(call('ZRANGE', leased, 0, tonumber(ARGV[2]) - 1)) do
  local row = read(position)
  local holder = by_owner[row[OWNER]]
  if not holder then
    holder = { row[OWNER], 0, 0, at - row[LEASE_UNTIL], at - row[LOCKED_AT] }
    by_owner[row[OWNER]], reply[#reply + 1] = holder, holder
  end
  holder[2] = holder[2] + 1
  if row[LEASE_UNTIL] < at - over_for then
    holder[3] = holder[3] + 1
  end
  holder[4] = math.max(holder[4], at - row[LEASE_UNTIL])
  holder[5] = math.max(holder[5], at - row[LOCKED_AT])
end
return reply
