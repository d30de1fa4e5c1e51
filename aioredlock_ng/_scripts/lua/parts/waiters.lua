-- Sets `nobody_waits` to true if no process waits for any of the first `n` keys in KEYS. The caller
-- declares `n`. While nobody waits, a script need not create the functions of parts/queue.lua. So
-- this part is not a function, and includes only parts/names.lua.
-- part: names
local nobody_waits = n > 0
for i = 1, n do
  local queue = QUEUE .. KEYS[i]
  local slots = slots_of(KEYS[i]) or queue
  if redis.pcall('EXISTS', queue, READERS_QUEUE .. KEYS[i], slots) ~= 0 then
    nobody_waits = false
    break
  end
end
