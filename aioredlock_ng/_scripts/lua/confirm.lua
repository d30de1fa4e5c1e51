-- Stores the second fence of an attempt if every key of the lock still holds the attempt's token.
-- KEYS     the lock's keys; then the fence counters
-- ARGV[1]  token
-- ARGV[2]  fence
-- ARGV[i]  from 3 on: the counter slots of the lock's keys, each slot once
-- Returns  1: each counter of the keys was below the fence, which is stored now.
--          {0, counter}: the fence is not above this counter.
--          {0, 0}: a key does not hold the token.
-- The script calls MGET, because GET would raise an error for a key of another type.
local n = #KEYS - 1
for _, holder in ipairs(redis.call('MGET', unpack(KEYS, 1, n))) do
  if holder ~= ARGV[1] then return {0, 0} end
end
local counters, fence, slots, highest = KEYS[n + 1], ARGV[2], {unpack(ARGV, 3)}, 0
-- part: fences
if highest > 0 then return {0, highest} end
return 1
