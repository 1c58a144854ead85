-- What is paused, and the clock; what is over is forgotten.
-- KEYS: meta pauses
local found, at, reply = call('HGETALL', pauses), now(), {}
for i = 1, #found, 2 do
  local ends = unpacked(found[i + 1])[4]
  if ends and ends <= at then
    call('HDEL', pauses, found[i])
  else
    reply[#reply + 1] = found[i]
    reply[#reply + 1] = found[i + 1]
  end
end
return { string.format('%.0f', at), reply }
