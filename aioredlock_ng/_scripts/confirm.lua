-- Acknowledges an attempt's second fence, where its keys still hold its token and the fence is above every counter.
-- KEYS     the lock's keys; then the hash of fence counters
-- ARGV[1]  token
-- ARGV[2]  fence
-- ARGV[i]  from 3 on: the counters' field for each lock key
-- Returns  1: acknowledged, and the counters are the fence now. {0, counter}: not; 0 where a key is no longer ours.
local n = #KEYS - 1
for i = 1, n do
  if redis.call('GET', KEYS[i]) ~= ARGV[1] then return {0, 0} end
end
local highest = 0
for i = 1, n do
  local counter = tonumber(redis.call('HGET', KEYS[n + 1], ARGV[2 + i]) or 0)
  if counter > highest then highest = counter end
end
if tonumber(ARGV[2]) <= highest then return {0, highest} end
for i = 1, n do redis.call('HSET', KEYS[n + 1], ARGV[2 + i], ARGV[2]) end
return 1
