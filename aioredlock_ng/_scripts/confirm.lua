-- Acknowledges an attempt's second fence, where its keys still hold its token and the fence is above every counter.
-- KEYS     the lock's keys; then the fence counters
-- ARGV[1]  token
-- ARGV[2]  fence
-- ARGV[i]  from 3 on: the slots of the lock's keys among the counters, each once
-- Returns  1: acknowledged, and the counters are the fence now. {0, counter}: not; 0 where a key is no longer ours.
-- MGET, unlike GET, takes a key of another type for a missing one.
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
