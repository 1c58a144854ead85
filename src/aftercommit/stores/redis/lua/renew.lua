-- Prolong leases from now on, where owner and epoch still stand; tell the numbers of those that were.
-- KEYS: meta ids rows leased
local lease_until, renewed = now() + tonumber(ARGV[1]), {}
also_when_full()
for i = 2, #ARGV, 4 do
  local row, position = held(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  if row then
    row[LEASE_UNTIL] = lease_until
    write(position, row)
    call('ZADD', leased, lease_until, position)
    renewed[#renewed + 1] = (i - 2) / 4
  end
end
return renewed
