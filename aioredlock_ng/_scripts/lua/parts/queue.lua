-- The queue of a lock: the processes that wait for one key, in order of their tickets.
-- The slots of a semaphore are keys '<name>#<number>'. The slots share one queue, because a waiter
-- accepts any slot. Each slot also has a queue of its own, for waiters that want this key as a
-- lock.
-- Member   '<manager>:<line>:<grace>'. The grace is the life in milliseconds of an offer to this
--          member. The line is the number that the member's process gave to its line of waiting
--          tasks. The manager is 16 hexadecimal digits, and receives messages on the channel
--          'aioredlock_ng:<manager>'. A '-' before the digits marks a member that receives no
--          messages, and polls the nodes. A waiter for a semaphore is
--          '<manager>:<line>:<limit>#<grace>', and accepts the slots up to its limit. A waiting
--          reader is '<manager>:<line>:r#<grace>', and stands in a queue of readers.
-- Claim    '<ticket>:<member>'. A waiter brings the same ticket to every node.
-- Offer    'aioredlock_ng:offer:<claim>', the value of a lock's key that is reserved for the member
--          of this claim, and for members before that member. To other clients the key is taken.
-- Message  '<milliseconds> <member> <key>'. The milliseconds are the time until this node may grant
--          the key; -1 if that is not known. A number below -1 means that the member is the second
--          in the queue. The time is then the number without its sign.
--          '0:<ticket> <member> <key>' offers a slot of a semaphore. The ticket is the highest one
--          of all waiters for the semaphore, including waiters with an offer.
--          '-1 <manager> <key>' notifies a process with read leases that a writer waits. From then
--          on the process does not share its read grants.
--          '0 <manager> <key>' notifies a process that its read leases were ended by force.
-- The queue is a sorted set, in which the ticket of a member is its score. The set has a key of its
-- own, which expires. Calls about queues use pcall, because an error must not end a script that has
-- set a key. An error can only cost waiters their order or some time.
local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return nil end
  return reply
end

-- part: names
-- part: readers

-- Returns the key of another slot of the same semaphore.
local function slot_key(key, slot) return (string.match(key, '^.*#') or key) .. slot end

-- Returns the limit of a member that waits for a semaphore, 1000 at most; nil for any other member.
local function limit_of(member)
  local limit = tonumber(string.match(member, ':(%d+)#%d+$') or 0)
  if limit > 0 then return math.min(limit, 1000) end
end

-- Returns the milliseconds of a member's grace, at most an hour. Without this limit, the number of
-- a damaged member could be too large for the caller to read.
local function grace_of(member)
  return math.min(tonumber(string.match(member, '[:#](%d+)$')) or 0, 3600000)
end

-- Sends text to a process. Returns false only if that process is certainly not connected.
local function send(manager, text) return ask('PUBLISH', 'aioredlock_ng:' .. manager, text) ~= 0 end

-- Sends text to the process of a member. Returns false only if that process is certainly not
-- connected.
local function publish(member, text)
  local manager = string.match(member, '^(%x+):')
  return not manager or send(manager, text)
end

local function notify(member, time, key)
  return publish(member, time .. ' ' .. member .. ' ' .. key)
end

local function is_offer_to(value, member)
  local _, offered = claim_in(value)
  return offered == member
end

-- Returns true if this value of a lock's key is an offer to the claim's member, or to a member with
-- a later place.
local function admits(value, claim)
  local ticket, member = claim_in(value)
  local own, me = ticket_and_member(claim)
  if not ticket or not own then return false end
  own, ticket = tonumber(own), tonumber(ticket)
  return member == me or own < ticket or (own == ticket and me < member)
end

-- Returns the highest ticket in a queue; 0 without a queue.
local function last_ticket(queue)
  local last = queue and ask('ZREVRANGE', queue, 0, 0, 'WITHSCORES') or {}
  return tonumber(last[2]) or 0
end

-- Returns true if a member accepts this slot. Slot 0 means a lock, which every member accepts.
local function takes(member, slot) return (limit_of(member) or slot) >= slot end

-- Returns the first member of a queue that accepts this slot, and the member's place. The search
-- begins at place `at`. Returns nil if no member accepts the slot.
local function taker(queue, slot, at)
  while true do
    local member = (ask('ZRANGE', queue, at, at) or {})[1]
    if not member or takes(member, slot) then return member, at end
    at = at + 1
  end
end

-- Notifies the first member of a queue that it is the first now. For a lock, `limit` is 0. A waiter
-- for a semaphore accepts only the slots up to its own limit. So for each slot up to `limit`, the
-- first member that accepts the slot is notified. `key` is the key of the lock, or of any slot of
-- the semaphore. The message to a waiter for a semaphore names slot 1, which every waiter accepts.
-- Members whose process is gone are removed.
local function notify_first(queue, key, limit)
  local slot = 0
  repeat
    local first = taker(queue, slot, 0)
    if not first then return end
    local own = limit_of(first)
    if notify(first, -1, own and slot_key(key, 1) or key) then
      if not own then return end
      slot = own + 1
    elseif not ask('ZREM', queue, first) then
      return
    end
  until slot > limit
end

-- Notifies the second waiter for a lock of the time until this node may grant the lock to it. The
-- waiter needs this time if the first waiter and the holder crash together. The time is the
-- remaining time of the key plus one grace for the first waiter. If readers hold the key, one more
-- grace follows (see stand.lua). Removes members whose process is gone.
local function notify_second(queue, key)
  local left = ask('PTTL', key) or -1
  if left < 0 then return end
  -- A key held by readers is not a string, so GET fails, and two graces apply.
  local before = ask('GET', key) and 1 or 2
  local second
  repeat
    second = (ask('ZRANGE', queue, 1, 1) or {})[1]
  until not second or notify(second, -left - before * grace_of(second), key)
    or not ask('ZREM', queue, second)
end

-- Returns the queue in which a member waits for a key.
local function queue_for(member, key)
  if is_reader(member) then return READERS_QUEUE .. key end
  return limit_of(member) and slots_of(key) or QUEUE .. key
end

-- Returns the highest ticket among the waiters for a key; 0 if nobody waits. If the value of the
-- key is an offer, the ticket in the offer counts, too. A ticket above 2^53 is damage, so the
-- result is limited to 2^53.
local function highest_ticket(key, value)
  local offered = tonumber((claim_in(value or ''))) or 0
  local writers, readers = last_ticket(QUEUE .. key), last_ticket(READERS_QUEUE .. key)
  local highest = math.max(writers, readers, last_ticket(slots_of(key)), offered)
  return math.min(highest, 9007199254740992)
end

-- Returns a refusal because of the key at `place`: {0, the remaining milliseconds of that key (-1
-- without expiry, -2 without a key), `place`, the highest ticket in the queues of all keys}.
-- A waiter has one ticket for all its keys. The ticket must be above all tickets in the queues of
-- these keys. Otherwise later waiters for one of the keys would overtake the waiter for ever.
local function refusal(place, keys, values)
  local highest = 0
  for i, key in ipairs(keys) do highest = math.max(highest, highest_ticket(key, values[i])) end
  return {0, redis.call('PTTL', keys[place]), place, highest}
end
