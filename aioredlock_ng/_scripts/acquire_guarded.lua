-- Takes all keys for one attempt, or none of them, where the node's memory is vouched for; and notes
-- the attempt's fence.
-- KEYS     the lock's keys, one per resource; then the node's marker; then the fence counters
-- ARGV[1]  token, fresh for every attempt
-- ARGV[2]  ttl in milliseconds
-- ARGV[3]  'run_id:guard': the server process as this connection knows it, the guard time in
--          milliseconds; '' no guard
-- ARGV[4]  proposed fence; '' no fencing
-- ARGV[5]  claim of a waiter; '' for a first attempt
-- ARGV[6]  '1': return the counter that the fence replaces; else ''
-- ARGV[i]  from 7 on: the slots of the lock's keys among the counters, each once
-- Returns  1: granted, and the fence is above every counter. {2, counter}: the same, and this was the
--          highest counter before; fence - 1 where a counter is missing. {1, counter}: granted, the
--          fence is not above this counter. {-1, left}: quarantined; milliseconds left, -1 where the
--          marker is missing, another's, too short, or above a day and a second (86401000), which is
--          damage. Else the refusal, see parts/queue.lua.
-- The marker (see marker.lua) is 'run_id:guard' where trusted. A connection that may not know the
-- run_id says zeros, and takes the marker's.
-- The keys are set first: after another write a full server would let that pass.
local n = #KEYS - 2
local token, ttl, vouch = ARGV[1], ARGV[2], ARGV[3]
local fence, claim, tell = ARGV[4], ARGV[5], ARGV[6]

-- What needs no queue does not pay for the functions of queues.
local after = nil
if n > 1 or claim ~= '' or not redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl) then
  -- part: queue
  local held = take(n, token, ttl, claim)
  if held then return held end
  after = function() served(n, claim) end
end

local refused
local marker = vouch ~= '' and redis.pcall('GET', KEYS[n + 1])
if type(marker) == 'table' then
  refused = marker
elseif vouch ~= '' and marker ~= vouch then
  -- part: marker
  local trusted, ready = read_marker(marker, vouch)
  if not trusted then
    refused = {-1, -1}
  elseif ready ~= '' then
    local now = redis.pcall('TIME')
    local left = now.err and 0 or tonumber(ready) - (now[1] * 1000 + math.floor(now[2] / 1000))
    if now.err then
      refused = now
    elseif left > 0 then
      refused = {-1, left}
    else
      redis.call('SET', KEYS[n + 1], trusted)
    end
  end
end

local highest, before = 0, 0
if fence ~= '' and not refused then
  local counters = KEYS[n + 2]
  for i = 7, n == 1 and 7 or #ARGV do
    local slot, counter = ARGV[i], nil
    if tell ~= '' then
      counter = redis.pcall('ZSCORE', counters, slot)
      -- A missing counter may be lost. Earlier leases may have had the fences just below this one.
      before = math.max(before, tonumber(type(counter) == 'string' and counter or fence - 1))
    end
    -- part: fence
    if type(counter) == 'string' then
      highest = math.max(highest, tonumber(counter))
    elseif counter then
      refused = counter
      break
    end
  end
end

if refused then
  redis.call('DEL', unpack(KEYS, 1, n))
  return refused
end
if after then after() end
if highest > 0 then return {1, highest} end
if tell ~= '' then return {2, before} end
return 1
