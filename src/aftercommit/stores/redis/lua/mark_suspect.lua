-- Count one more delivery that begins as a suspect, or take it back, where owner and epoch still stand.
-- KEYS: meta ids rows
local row, position = held(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if not row then
  return 0
end
also_when_full()
row[ABANDONED] = row[ABANDONED] + tonumber(ARGV[5])
write(position, row)
return 1
