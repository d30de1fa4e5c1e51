-- The queue of a lock: the processes that wait for one key, in order of their tickets.
-- The slots of a semaphore are keys '<name>#<number>'. They share one queue, because a waiter takes
-- any slot. Each slot also has a queue of its own, for waiters that want this key as a lock.
-- Member   '<manager>:<line>:<grace>'. The grace is how many milliseconds an offer to this member
--          lives. The manager is 16 hexadecimal digits, and messages reach it by the channel
--          'aioredlock_ng:<manager>'. A '-' before the digits marks a member that receives no
--          messages, and asks the nodes again by itself. A waiter for a semaphore is
--          '<manager>:<line>:<limit>#<grace>', and takes the slots up to its limit.
-- Claim    '<ticket>:<member>'. A waiter brings the same ticket to every node.
-- Offer    'aioredlock_ng:offer:<claim>', the value of a lock's key that is reserved for this
--          member and for members before it. Other clients see a key that exists.
-- Message  '<milliseconds> <member> <key>'. The milliseconds say when this node may grant the key;
--          -1 if that is not known.
-- The queue is a sorted set, in which the ticket of a member is its score. It has a key of its own,
-- which expires.
-- Calls about queues use pcall, because an error must not end a script that has set a key. An error
-- only costs order or time.
local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return nil end
  return reply
end

local function queue_of(key) return 'aioredlock_ng:queue:' .. key end
-- part: slots

-- Returns the limit of a member that waits for a semaphore; nil for any other member.
local function limit_of(member) return tonumber(string.match(member, ':(%d+)#%d+$')) end

-- Returns the milliseconds of a member's grace, an hour at most. A damaged member in the queue must
-- not produce a number that the caller cannot read.
local function grace_of(member)
  return math.min(tonumber(string.match(member, '[:#](%d+)$')) or 0, 3600000)
end

-- Sends a message to a member. Returns false only if its process is certainly not connected.
local function notify(member, milliseconds, key)
  local manager = string.match(member, '^(%x+):')
  if not manager then return true end
  local message = milliseconds .. ' ' .. member .. ' ' .. key
  return ask('PUBLISH', 'aioredlock_ng:' .. manager, message) ~= 0
end

local function is_offer_to(value, member)
  return string.match(value, '^aioredlock_ng:offer:%d+:(.+)$') == member
end

-- Returns true if this value of a lock's key is an offer to the claim's member, or to a member
-- behind it.
local function admits(value, claim)
  local ticket, member = string.match(value, '^aioredlock_ng:offer:(%d+):(.+)$')
  local own, me = string.match(claim, '^(%d+):(.+)$')
  if not ticket or not own then return false end
  own, ticket = tonumber(own), tonumber(ticket)
  return member == me or own < ticket or (own == ticket and me < member)
end

-- Tells the first member of a queue that it is the first now. Removes members whose process is
-- gone. The key is one of those that the queue is for. A waiter for a semaphore may have too low a
-- limit for this slot, but every such waiter takes slot 1.
local function notify_first(queue, key)
  local first = ask('ZRANGE', queue, 0, 0)
  while first and first[1] do
    local known = limit_of(first[1]) and string.gsub(key, '%d+$', '1', 1) or key
    if notify(first[1], -1, known) or not ask('ZREM', queue, first[1]) then return end
    first = ask('ZRANGE', queue, 0, 0)
  end
end

-- Offers a key to the first member of a queue that takes this slot. Slot 0 is a lock, which every
-- member takes. Returns false if there is no such member.
local function offer_to(queue, key, slot)
  local at = 0
  while true do
    local line = ask('ZRANGE', queue, at, at + 1, 'WITHSCORES') or {}
    local member, ticket, second = line[1], line[2], line[3]
    if not member then return false end
    if (limit_of(member) or slot) < slot then
      at = at + 1
    else
      local heard = notify(member, 0, key)
      if not ask('ZREM', queue, member) then return false end
      if heard then
        local grace = math.max(1, grace_of(member))
        local value = 'aioredlock_ng:offer:' .. ticket .. ':' .. member
        if not ask('SET', key, value, 'PX', grace) then return false end
        if second and (limit_of(second) or slot) >= slot then notify(second, grace, key) end
        return true
      end
    end
  end
end

-- Offers a key to the first waiter for it, and removes that member from its queue. Returns false if
-- nobody waits. A stopped process lets its offer expire. If it stayed in the queue, each hand-over
-- would wait for it. A member that still waits enters again with its old ticket.
local function offer(key)
  if offer_to(queue_of(key), key, 0) then return true end
  local shared, slot = slots_of(key)
  return shared ~= nil and offer_to(shared, key, slot)
end

-- Removes a member from a queue. If it was the first, the next member is notified.
local function step_out(queue, member, key)
  local first = ask('ZRANGE', queue, 0, 0)
  if ask('ZREM', queue, member) == 1 and first and first[1] == member then
    notify_first(queue, key)
  end
end

-- Returns the queue in which a member waits for a key.
local function queue_for(member, key)
  return limit_of(member) and slots_of(key) or queue_of(key)
end

-- Removes a member that no longer wants the key. An offer to it goes to the next member.
local function leave(key, member)
  local value, queue = ask('GET', key), queue_for(member, key)
  if value and is_offer_to(value, member) then
    ask('ZREM', queue, member)
    if not offer(key) then ask('DEL', key) end
  else
    step_out(queue, member, key)
  end
end

local function last_ticket(queue)
  local last = queue and ask('ZREVRANGE', queue, 0, 0, 'WITHSCORES') or {}
  return tonumber(last[2]) or 0
end

-- Returns the highest ticket among the waiters for a key with this value; 0 if nobody waits. A
-- ticket above 2^53 is damage, and counts as 2^53.
local function highest_ticket(key, value)
  local offered = tonumber(string.match(value or '', '^aioredlock_ng:offer:(%d+):')) or 0
  local highest = math.max(last_ticket(queue_of(key)), last_ticket(slots_of(key)), offered)
  return math.min(highest, 9007199254740992)
end

-- Returns how many members a queue has; -1 if that is not known. ZCARD would need a right that
-- waiting does not need.
local function length_of(queue)
  local last = ask('ZREVRANGE', queue, 0, 0)
  if not last then return -1 end
  if not last[1] then return 0 end
  return (ask('ZRANK', queue, last[1]) or -2) + 1
end

-- Returns how many members wait for a key with this value; -1 if that is not known. The member of
-- an offer has left the queue, and still waits. A waiter for a semaphore counts for each slot.
local function waiting(key, value)
  local count, shared = length_of(queue_of(key)), slots_of(key)
  local others = shared and length_of(shared) or 0
  if count < 0 or others < 0 then return -1 end
  local member = string.match(value or '', '^aioredlock_ng:offer:%d+:(.+)$')
  if member and not ask('ZRANK', queue_for(member, key), member) then count = count + 1 end
  return count + others
end

-- Returns a refusal because of one of these keys: {0, remaining milliseconds (-1 without expiry),
-- the place of that key among the keys, the highest ticket among the waiters for any of the keys}.
-- A waiter has one ticket for all its keys, which must be above the tickets in all their queues.
-- Otherwise later waiters for one of the keys would overtake it for ever.
local function refusal(place, keys, values)
  local highest = 0
  for i, key in ipairs(keys) do highest = math.max(highest, highest_ticket(key, values[i])) end
  return {0, redis.call('PTTL', keys[place]), place, highest}
end

-- Sets the first n keys to a token, or none of them. Returns the refusal if a key is held.
-- MGET instead of GET: see extend.lua.
local function take(n, token, ttl, claim)
  if n == 1 and redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl) then return nil end
  local keys = {unpack(KEYS, 1, n)}
  local values = redis.call('MGET', unpack(keys))
  for i = 1, n do
    if values[i] and not admits(values[i], claim) then return refusal(i, keys, values) end
  end
  for i = 1, n do
    if values[i] then
      redis.call('SET', keys[i], token, 'PX', ttl)
    elseif not redis.call('SET', keys[i], token, 'NX', 'PX', ttl) then
      -- This key is of another type, which MGET reports as missing. GET raises the error.
      if i > 1 then redis.call('DEL', unpack(keys, 1, i - 1)) end
      redis.call('GET', keys[i])
    end
  end
end

-- Removes a claim's member from the queues of the first n keys, which it holds now. Notifies
-- the new first member, because the offer before it no longer exists. Of a semaphore the member
-- has one slot. Offers of other slots to it go to the next members.
local function served(n, claim)
  local member = string.match(claim, '^%d+:(.+)$')
  if not member then return end
  local limit = math.min(limit_of(member) or 0, 1000)
  for i = 1, n do
    ask('ZREM', queue_for(member, KEYS[i]), member)
    local slots = {}
    for slot = 1, limit do slots[slot] = string.gsub(KEYS[i], '%d+$', slot, 1) end
    for slot, value in ipairs(limit > 0 and ask('MGET', unpack(slots)) or {}) do
      if value and is_offer_to(value, member) and not offer(slots[slot]) then
        ask('DEL', slots[slot])
      end
    end
    notify_first(queue_for(member, KEYS[i]), KEYS[i])
  end
end
