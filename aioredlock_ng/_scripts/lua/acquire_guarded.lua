-- Acquires all keys for one attempt, or none of them, if the node is trusted. Stores the attempt's
-- fence in the fence counters.
-- KEYS     the lock's keys, one per resource; then the node's marker; then the fence counters
-- ARGV[1]  token, fresh for every attempt
-- ARGV[2]  ttl in milliseconds
-- ARGV[3]  expected marker 'run_id:guard'; '' without a guard. The run_id is the one that this
--          connection has read from its server process. A connection that may not read the run_id
--          sends zeros, and accepts any run_id in the marker. The guard time is in milliseconds.
-- ARGV[4]  proposed fence; '' without fencing
-- ARGV[5]  claim of a waiter, see parts/queue.lua; '' for a first attempt
-- ARGV[6]  '1' to return the counter that the fence replaces; else ''
-- ARGV[i]  from 7 on: the counter slots of the lock's keys, each slot once. The fence counters are
--          a sorted set. The slot of a key is a member of this set, and its score is the counter.
-- Returns  1: granted. With fencing, each counter of the keys was below the fence.
--          {2, counter}: as 1, but with the counter for which ARGV[6] asks. The counter is the
--          highest counter that the fence has replaced. A missing counter counts as fence - 1.
--          {1, counter}: granted, but the fence is not above this counter.
--          {-1, left}: quarantined for `left` milliseconds. `left` is -1 if the marker is missing
--          or does not match ARGV[3], see parts/marker.lua.
--          In all other cases the refusal, see parts/queue.lua.
-- The keys are set before the fence is stored. A full server refuses a write only if the script has
-- written nothing yet. So the server cannot refuse the fence after it has accepted the keys.
local n = #KEYS - 2
local token, ttl, expected = ARGV[1], ARGV[2], ARGV[3]
local fence, claim, with_counter = ARGV[4], ARGV[5], ARGV[6]

-- A node that is not trusted must not change a key, not even until the end of the script. Otherwise
-- an offer in the key would be lost, and clients that track the key would get a report.
local marker_key = KEYS[n + 1]
-- part: compare
if is_odd then
  -- part: trust
  local refused = distrusted(marker_key, KEYS[n + 2], marker, expected)
  if refused then
    -- part: taking
    -- The call fails without the right to MGET, and for a key of another type.
    local known, held = pcall(refused_by_holders, n, claim)
    return known and held or refused
  end
end

-- Two cases must not spend time on creating the functions of parts/taking.lua: the acquire of a
-- free key, and the acquire by a waiter to which the key of a lock is offered. So only the block
-- for the other cases includes the part.
local after = nil
if n > 1 or claim ~= '' or not redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl) then
  -- part: names
  local is_plain = n == 1 and claim ~= '' and not string.find(claim, '#', 1, true)
  if is_plain and redis.pcall('GET', KEYS[1]) == OFFER .. claim then
    redis.call('SET', KEYS[1], token, 'PX', ttl)
    after = function() redis.pcall('ZREM', QUEUE .. KEYS[1], string.match(claim, ':(.+)')) end
  else
    -- part: taking
    local held = take(n, token, ttl, claim)
    if held then return held end
    after = function() served(n, claim) end
  end
end

local refused
local highest, before = 0, 0
if fence ~= '' then
  local counters = KEYS[n + 2]
  for i = 7, n == 1 and 7 or #ARGV do
    local slot, counter = ARGV[i], nil
    if with_counter ~= '' then
      counter = redis.pcall('ZSCORE', counters, slot)
      -- The node may have lost a missing counter. Earlier leases may then have fences up to
      -- fence - 1, so a missing counter counts as fence - 1.
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
if with_counter ~= '' then return {2, before} end
return 1
