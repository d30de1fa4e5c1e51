-- Grants the key to an attempt to read, if the node is trusted.
-- KEYS[1]  the lock's key
-- KEYS[2]  the node's marker
-- KEYS[3]  the fence counters
-- ARGV[1]  entry of the attempt, see parts/readers.lua. Its token is fresh for every attempt.
-- ARGV[2]  ttl in milliseconds
-- ARGV[3]  expected marker, see acquire_guarded.lua; '' without a guard
-- ARGV[4]  the counter slot of the key; '' without fencing
-- ARGV[5]  claim of a waiter, see parts/queue.lua; '' for a first attempt
-- Returns  1: granted, without fencing.
--          {1, counter}: granted. The counter is raised to the floor, see parts/floor.lua, and then
--          to the last number of its block of 16. All fences of the last writer's grant are in this
--          block or in earlier ones. So the fence of a reader is at least as high as these fences.
--          {-1, left}: quarantined, see acquire_guarded.lua.
--          In all other cases the refusal, see parts/queue.lua.
-- part: readers
local key, entry, expected, claim = KEYS[1], ARGV[1], ARGV[3], ARGV[5]
local value, after = value_of(key), nil
local is_free = not value or value == READERS

-- While nobody waits, an acquire must not spend time on creating the functions of
-- parts/entries.lua.
local n = 1
-- part: waiters
if not is_free or claim ~= '' or not nobody_waits then
  -- part: queue
  -- part: tickets
  -- part: entries
  if not is_free then return refusal(1, {key}, {value}) end
  local _, member = ticket_and_member(claim)
  local offered = member and offer_to(member)
  -- If the key is missing although a writer waits, a lease or an offer has expired. A waiting
  -- reader may then enter before the writer.
  local may_enter = offered and (not value or has_entry(key, offered, now_ms()))
  if not may_enter and writer_waits(key) then return refusal(1, {key}, {value}) end
  after = member and function()
    ask('ZREM', key, offered)
    ask('ZREM', READERS_QUEUE .. key, member)
    settle(key)
    -- The key was free, so all waiting readers enter together.
    if not value then offer_readers(key) end
    -- When a writer enters the queue, the node notifies only the processes that have entries. If a
    -- writer came after the offer to this process, the node has not notified this process yet.
    if writer_waits(key) then announce_writer(key, {entry}) end
  end
end

-- A node that is not trusted must not change the key; see acquire_guarded.lua.
local marker_key = KEYS[2]
-- part: compare
local refused, counter
if is_odd then
  -- part: trust
  refused = distrusted(marker_key, KEYS[3], marker, expected)
  if refused then return refused end
end

-- The entry is added before the counter is raised. A full server refuses a write only if the script
-- has written nothing yet. So the server cannot refuse to raise the counter after it has accepted
-- the entry.
keep_entry(key, entry, now_ms() + tonumber(ARGV[2]))
if ARGV[4] ~= '' then
  local stored = redis.pcall('ZSCORE', KEYS[3], ARGV[4])
  local floor = redis.pcall('ZSCORE', KEYS[3], 'floor')
  if type(stored) == 'table' or type(floor) == 'table' then
    refused = type(stored) == 'table' and stored or floor
  else
    counter = math.max(tonumber(stored or 0), tonumber(floor or 0))
    -- part: counters
    if not is_damaged(counter) then
      counter = counter - counter % 16 + 15
      local done = redis.pcall('ZADD', KEYS[3], 'GT', string.format('%.0f', counter), ARGV[4])
      if type(done) == 'table' then refused = done end
    end
  end
end

if refused then
  redis.call('ZREM', key, entry)
  settle(key)
  return refused
end
if after then after() end
if counter then return {1, counter} end
return 1
