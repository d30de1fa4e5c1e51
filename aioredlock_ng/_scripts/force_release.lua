-- Deletes keys whoever holds them: an operator's last resort.
-- KEYS     the lock's keys; then, with fencing, the fence counters
-- ARGV[1]  with fencing: a fence that counters are raised to at least
-- ARGV[i]  from 2 on: the slots of the lock's keys among the counters, each once
-- Returns  how many keys were deleted.
-- Counters rise above the holder's fence: else a holder that hears of one node before the others are asked repairs them.
local n = #KEYS
if ARGV[1] then
  n = n - 1
  local fence = tonumber(ARGV[1])
  for i = 2, #ARGV do
    local counter = tonumber(redis.call('ZADD', KEYS[n + 1], 'INCR', 0, ARGV[i]))
    if counter >= fence then fence = counter + 1 end
  end
  for i = 2, #ARGV do redis.call('ZADD', KEYS[n + 1], string.format('%.0f', fence), ARGV[i]) end
end
return redis.call('DEL', unpack(KEYS, 1, n))
