-- Deletes keys whoever holds them: an operator's last resort.
-- KEYS     the lock's keys; then, with fencing, the hash of fence counters
-- ARGV[1]  with fencing: a fence that counters are raised to at least
-- ARGV[i]  from 2 on: the counters' field for each lock key
-- Returns  how many keys were deleted.
-- Counters rise above the holder's fence: else a holder that hears of one node before the others are asked repairs them.
local n = #KEYS
if ARGV[1] then
  n = n - 1
  local fence = tonumber(ARGV[1])
  for i = 1, n do
    local counter = tonumber(redis.call('HGET', KEYS[n + 1], ARGV[1 + i]) or 0)
    if counter >= fence then fence = counter + 1 end
  end
  for i = 1, n do redis.call('HSET', KEYS[n + 1], ARGV[1 + i], string.format('%.0f', fence)) end
end
return redis.call('DEL', unpack(KEYS, 1, n))
