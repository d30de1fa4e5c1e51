-- Stores an attempt's second fence if all its keys still hold its token.
-- KEYS     the lock's keys; then the fence counters
-- ARGV[1]  token
-- ARGV[2]  fence
-- ARGV[i]  from 3 on: the slots of the lock's keys among the counters, each slot once
-- Returns  1: the fence is above every counter, and is stored.
--          {0, counter}: the fence is not above this counter.
--          {0, 0}: a key does not hold the token.
-- MGET replaces GET, because MGET raises no error for a key of another type.
local n = #KEYS - 1
for _, holder in ipairs(redis.call('MGET', unpack(KEYS, 1, n))) do
  if holder ~= ARGV[1] then return {0, 0} end
end
local counters, fence, highest = KEYS[n + 1], ARGV[2], 0
for i = 3, #ARGV do
  local slot, counter = ARGV[i], nil
  -- part: fence
  if type(counter) == 'string' then
    highest = math.max(highest, tonumber(counter))
  elseif counter then
    return counter
  end
end
if highest > 0 then return {0, highest} end
return 1
