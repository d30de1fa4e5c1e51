-- Sets `nobody_waits` to true if no process waits for any of the first `n` keys in KEYS. The caller
-- declares `n`. Sets `locks_only` to true if n is 1 and all waiters stand in the key's own queue.
-- While nobody waits, a script need not create the functions of parts/queue.lua. So this part is
-- not a function, and includes only parts/names.lua.
-- part: names
local nobody_waits, locks_only = n > 0, false
for i = 1, n do
  local readers, slots = READERS_QUEUE .. KEYS[i], slots_of(KEYS[i])
  -- Without slots, the queue of readers counts twice. So a count of 1 is the key's own queue.
  local queues = redis.pcall('EXISTS', QUEUE .. KEYS[i], readers, slots or readers)
  if queues ~= 0 then
    nobody_waits, locks_only = false, n == 1 and queues == 1 and not slots
    break
  end
end
