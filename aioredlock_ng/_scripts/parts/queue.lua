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

-- Returns the key of another slot of the same semaphore.
local function slot_key(key, slot) return (string.match(key, '^.*#') or key) .. slot end

-- Returns the limit of a member that waits for a semaphore, 1000 at most; nil for any other member.
local function limit_of(member)
  local limit = tonumber(string.match(member, ':(%d+)#%d+$') or 0)
  if limit > 0 then return math.min(limit, 1000) end
end

-- Returns the milliseconds of a member's grace, an hour at most. A damaged member in the queue must
-- not produce a number that the caller cannot read.
local function grace_of(member)
  return math.min(tonumber(string.match(member, '[:#](%d+)$')) or 0, 3600000)
end

-- Sends text to the process of a member. Returns false only if it is certainly not connected.
local function publish(member, text)
  local manager = string.match(member, '^(%x+):')
  return not manager or ask('PUBLISH', 'aioredlock_ng:' .. manager, text) ~= 0
end

local function notify(member, milliseconds, key)
  return publish(member, milliseconds .. ' ' .. member .. ' ' .. key)
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

-- Returns true if a member takes this slot. Slot 0 is a lock, which every member takes.
local function takes(member, slot) return (limit_of(member) or slot) >= slot end

-- Returns the first member, from place `at` of a queue on, that takes this slot; and its place.
-- Returns nil if there is no such member.
local function taker(queue, slot, at)
  while true do
    local member = (ask('ZRANGE', queue, at, at) or {})[1]
    if not member or takes(member, slot) then return member, at end
    at = at + 1
  end
end

-- Tells the first member of a queue that it is the first now. Also tells the first member that
-- takes the slots above the limit of that member, up to this limit; 0 is the limit of a lock.
-- Removes members whose process is gone. The key is one of those that the queue is for. Every
-- waiter for a semaphore takes slot 1.
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

-- Sets a key to an offer.
local function reserve(key, ticket, member, milliseconds)
  local value = 'aioredlock_ng:offer:' .. ticket .. ':' .. member
  return ask('SET', key, value, 'PX', math.max(1, milliseconds))
end

-- Offers a lock's key to the first member of its own queue. Returns false if there is none.
local function offer_lock(key)
  local queue = queue_of(key)
  while true do
    local line = ask('ZRANGE', queue, 0, 1, 'WITHSCORES') or {}
    local member, ticket, second = line[1], line[2], line[3]
    if not member then return false end
    local heard = notify(member, 0, key)
    if not ask('ZREM', queue, member) then return false end
    if heard then
      if not reserve(key, ticket, member, grace_of(member)) then return false end
      if second then notify(second, grace_of(member), key) end
      return true
    end
  end
end

-- Returns the keys of the slots 1 to `limit` of the semaphore to which a slot belongs.
local function slots_up_to(limit, key)
  local keys = {}
  for slot = 1, limit do keys[slot] = slot_key(key, slot) end
  return keys
end

-- Offers a slot to a member as well, and shares out all slots on offer: the lowest slot goes to the
-- lowest ticket, and so on. So nodes on which slots became free in different orders offer the same
-- slots to the same members. A member keeps the remaining time of its offer. Returns false if the
-- member's process is gone.
local function share_out(key, slot, ticket, member)
  local new = {tonumber(ticket), member, 0, grace_of(member), ticket}
  local slots, offers = {slot}, {new}
  local keys = slots_up_to(limit_of(member), key)
  for at, value in ipairs(ask('MGET', unpack(keys)) or {}) do
    local own, other = string.match(value or '', '^aioredlock_ng:offer:(%d+):(.+)$')
    if own and at ~= slot and limit_of(other) then
      slots[#slots + 1] = at
      offers[#offers + 1] = {tonumber(own), other, at, ask('PTTL', keys[at]) or 0, own}
    end
  end
  table.sort(slots)
  table.sort(offers, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
  for at, offer in ipairs(offers) do
    if limit_of(offer[2]) < slots[at] then
      -- Members with different limits keep what they were offered.
      slots, offers = {slot}, {new}
      break
    end
  end
  for at, offer in ipairs(offers) do
    if offer[2] == member and not notify(member, 0, keys[slots[at]]) then return false end
  end
  for at, offer in ipairs(offers) do
    if offer[3] ~= slots[at] then
      if not reserve(keys[slots[at]], offer[5], offer[2], offer[4]) then return false end
      if offer[2] ~= member then notify(offer[2], 0, keys[slots[at]]) end
    end
  end
  return true
end

-- Offers a slot to the first member of the shared queue that takes it. Returns false if there is
-- none.
local function offer_slot(key)
  local queue, slot = slots_of(key)
  local at = 0
  while queue do
    local line = ask('ZRANGE', queue, at, at + 1, 'WITHSCORES') or {}
    local member, ticket, second = line[1], line[2], line[3]
    if not member then return false end
    if (limit_of(member) or 0) < slot then
      at = at + 1
    else
      if not ask('ZREM', queue, member) then return false end
      if share_out(key, slot, ticket, member) then
        if second and not takes(second, slot) then second = taker(queue, slot, at + 1) end
        if second then notify(second, grace_of(member), key) end
        return true
      end
    end
  end
  return false
end

-- Offers a key to the first waiter for it, and removes that member from its queue. Returns false if
-- nobody waits. A stopped process lets its offer expire. If it stayed in the queue, each hand-over
-- would wait for it. A member that still waits enters again with its old ticket.
local function offer(key) return offer_lock(key) or offer_slot(key) end

-- Adds a member to a queue, or confirms it. Removes the dead members just before it, because a
-- waiter behind them would not learn that it is the first. The empty text has no meaning. A waiter
-- looks again within half of the life that this sets. A queue that expired in between would let a
-- release notify nobody.
local function enter(queue, ticket, member, life)
  -- ZRANK fails if the user has no rights to queues. The waiter must not enter then. It could not
  -- leave, and each hand-over would wait for an offer to it.
  if ask('ZRANK', queue, member) == nil then return end
  ask('ZADD', queue, ticket, member)
  local rank = ask('ZRANK', queue, member) or 0
  while rank > 0 do
    local before = (ask('ZRANGE', queue, rank - 1, rank - 1) or {})[1]
    if not before or publish(before, '') or not ask('ZREM', queue, before) then break end
    rank = rank - 1
  end
  life = life * (1 + 2 * math.min(rank, 15))
  if (ask('PTTL', queue) or 0) < life then ask('PEXPIRE', queue, life) end
end

-- Removes a member from a queue. If it was the first that takes its slots, the next member is
-- notified.
local function step_out(queue, member, key)
  local limit = limit_of(member) or 0
  local first = taker(queue, limit, 0)
  if ask('ZREM', queue, member) == 1 and first == member then notify_first(queue, key, limit) end
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

-- Returns for each key how many members wait for it; -1 if that is not known. The member of an
-- offer has left the queue, and still waits. A waiter for a semaphore counts for each slot. A
-- semaphore may have a thousand slots. So one request finds out that no slot has a queue of its
-- own, and the queue that the slots share is counted once.
local function waiting(keys, values)
  local queues, lengths, counts = {}, {}, {}
  for i, key in ipairs(keys) do queues[i] = queue_of(key) end
  local nobody = #keys > 1 and ask('EXISTS', unpack(queues)) == 0
  for i, key in ipairs(keys) do
    local count, shared = nobody and 0 or length_of(queues[i]), slots_of(key)
    if shared and not lengths[shared] then lengths[shared] = length_of(shared) end
    local others = shared and lengths[shared] or 0
    local member = string.match(values[i] or '', '^aioredlock_ng:offer:%d+:(.+)$')
    if member and not ask('ZRANK', queue_for(member, key), member) then count = count + 1 end
    counts[i] = (count < 0 or others < 0) and -1 or count + others
  end
  return counts
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

-- The offers that `take` has replaced.
local displaced = {}

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
      displaced[i] = values[i]
    elseif not redis.call('SET', keys[i], token, 'NX', 'PX', ttl) then
      -- This key is of another type, which MGET reports as missing. GET raises the error.
      if i > 1 then redis.call('DEL', unpack(keys, 1, i - 1)) end
      redis.call('GET', keys[i])
    end
  end
end

-- Removes a claim's member from the queues of the first n keys, which it holds now. Notifies
-- the new first member, because the offer before it no longer exists. Of a semaphore the member
-- has one slot. A member that it has displaced enters the queue again, and offers of other slots
-- go to the next members.
local function served(n, claim)
  local member = string.match(claim, '^%d+:(.+)$')
  if not member then return end
  for i = 1, n do
    local queue = queue_for(member, KEYS[i])
    ask('ZREM', queue, member)
    local ticket, other = string.match(displaced[i] or '', '^aioredlock_ng:offer:(%d+):(.+)$')
    if other and other ~= member and limit_of(other) then
      ask('ZADD', queue, ticket, other)
      if (ask('PTTL', queue) or 0) < 20000 then ask('PEXPIRE', queue, 20000) end
    end
    local limit = slots_of(KEYS[i]) and limit_of(member) or 0
    local slots = slots_up_to(limit, KEYS[i])
    for at, value in ipairs(#slots > 0 and ask('MGET', unpack(slots)) or {}) do
      if value and is_offer_to(value, member) and not offer(slots[at]) then
        ask('DEL', slots[at])
      end
    end
    notify_first(queue, KEYS[i], limit)
  end
end
