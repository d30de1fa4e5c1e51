-- Takes all keys for one attempt, or none of them, where the node's memory is vouched for; and notes the attempt's fence.
-- KEYS     the lock's keys, one per resource; then the node's marker; then the hash of fence counters
-- ARGV[1]  token, fresh for every attempt
-- ARGV[2]  ttl in milliseconds
-- ARGV[3]  'run_id:guard': the server process as this connection knows it, the guard time in milliseconds; '' no guard
-- ARGV[4]  proposed fence; '' no fencing
-- ARGV[i]  from 5 on: the counters' field for each lock key
-- Returns  1: granted, and the fence is above every counter. {1, counter}: granted, the fence is not above this counter.
--          {0, remaining}: another holds at least one; remaining milliseconds of the longest, -1 endless.
--          {-1, left}: quarantined; milliseconds left, -1 where the marker is missing, another's or too short.
-- The marker (see marker.lua) is 'run_id:guard' where trusted. GET also raises WRONGTYPE, and leaves a held key tracked.
-- The lock's keys are set last: who may not touch the counters leaves none behind.
-- Counters are read only where they are then written: a connection that has only read the hash would track it.
local n = #KEYS - 2
local vouch, fence = ARGV[3], ARGV[4]
local held, longest = false, 0
for i = 1, n do
  if redis.call('GET', KEYS[i]) then
    local left = redis.call('PTTL', KEYS[i])
    held = true
    if left < 0 or longest < 0 then longest = -1 elseif left > longest then longest = left end
  end
end
if held then return {0, longest} end
local marker = vouch ~= '' and redis.call('GET', KEYS[n + 1])
if vouch ~= '' and marker ~= vouch then
  local id, guard, ready = string.match(marker or '', '^(%w+):(%d+):?(%d*)')
  local own, wanted = string.match(vouch, '^(%w+):(%d+)$')
  if id ~= own or tonumber(guard) < tonumber(wanted) then return {-1, -1} end
  if ready ~= '' then
    local now = redis.call('TIME')
    local left = tonumber(ready) - (now[1] * 1000 + math.floor(now[2] / 1000))
    if left > 0 then return {-1, left} end
    redis.call('SET', KEYS[n + 1], id .. ':' .. guard)
  end
end
local answer = 1
if fence ~= '' then
  local highest = 0
  for i = 1, n do
    local counter = tonumber(redis.call('HGET', KEYS[n + 2], ARGV[4 + i]) or 0)
    if counter > highest then highest = counter end
  end
  if tonumber(fence) <= highest then
    answer = {1, highest}
  else
    for i = 1, n do redis.call('HSET', KEYS[n + 2], ARGV[4 + i], fence) end
  end
end
for i = 1, n do redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) end
return answer
