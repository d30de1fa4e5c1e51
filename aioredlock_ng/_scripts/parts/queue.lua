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

local function queue_of(key) return 'aioredlock_ng:queue:' .. key end
-- part: slots
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

-- Sends text to the process of a member. Returns false only if that process is certainly not
-- connected.
local function publish(member, text)
  local manager = string.match(member, '^(%x+):')
  return not manager or ask('PUBLISH', 'aioredlock_ng:' .. manager, text) ~= 0
end

local function notify(member, time, key)
  return publish(member, time .. ' ' .. member .. ' ' .. key)
end

local function is_offer_to(value, member)
  return string.match(value, '^aioredlock_ng:offer:%d+:(.+)$') == member
end

-- Returns true if this value of a lock's key is an offer to the claim's member, or to a member with
-- a later place.
local function admits(value, claim)
  local ticket, member = string.match(value, '^aioredlock_ng:offer:(%d+):(.+)$')
  local own, me = string.match(claim, '^(%d+):(.+)$')
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

local function reserve(key, ticket, member, milliseconds)
  local value = 'aioredlock_ng:offer:' .. ticket .. ':' .. member
  return ask('SET', key, value, 'PX', math.max(1, milliseconds))
end

-- Offers a key to the first member of the key's own queue. Returns false if no member gets the
-- offer.
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

-- Offers one more slot to a member, and then distributes all offered slots again: the lowest slot
-- goes to the lowest ticket, and so on. So two nodes offer the same slots to the same members, even
-- if the slots became free in different orders. An earlier offer keeps its remaining time if its
-- slot changes. Returns false if the process of the new member is gone.
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
  local highest = math.max(last_ticket((slots_of(key))), offers[#offers][1])
  local now = '0:' .. string.format('%.0f', math.min(highest, 9007199254740992))
  for at, offer in ipairs(offers) do
    if limit_of(offer[2]) < slots[at] then
      -- With the new distribution, this member would get a slot above its limit. So all earlier
      -- offers stay as they are.
      slots, offers = {slot}, {new}
      break
    end
  end
  for at, offer in ipairs(offers) do
    if offer[2] == member and not notify(member, now, keys[slots[at]]) then return false end
  end
  for at, offer in ipairs(offers) do
    if offer[3] ~= slots[at] then
      if not reserve(keys[slots[at]], offer[5], offer[2], offer[4]) then return false end
      if offer[2] ~= member then notify(offer[2], now, keys[slots[at]]) end
    end
  end
  return true
end

-- Offers a slot to the first member of the shared queue that accepts the slot. Returns false if no
-- member gets the offer.
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

-- Offers a key to all waiting readers, and empties their queue. If the key holds a writer's token,
-- that token is deleted first. At the end, notifies the first waiting writer that it is the first.
-- Returns false if no waiting reader is connected.
local function offer_readers(key)
  local queue, offered = readers_of(key), false
  local members = ask('ZRANGE', queue, 0, -1) or {}
  if not members[1] then return false end
  -- A user of locks may have no right to TIME, and the key may be of another type by now. Without
  -- pcall, the error would end a release that has freed nothing yet.
  local known, now, value = pcall(function() return now_ms(), value_of(key) end)
  if not known or not ask('DEL', queue) then return false end
  for _, member in ipairs(members) do
    if notify(member, 0, key) then
      if not offered and value ~= READERS then ask('DEL', key) end
      local expiry = string.format('%.0f', now + grace_of(member))
      offered = ask('ZADD', key, expiry, 'aioredlock_ng:offer:' .. member) and true or offered
    end
  end
  if not offered or not pcall(settle, key) then return false end
  notify_first(queue_of(key), key, 0)
  return true
end

-- When a writer frees a key, offers the key to all waiting readers. If no reader waits, the first
-- writer gets the offer. The members with an offer are removed from their queue. Otherwise a member
-- whose process has stopped would delay each hand-over by the life of an offer. A member that lets
-- its offer expire, but still waits, enters again with its old ticket. Returns false if no waiter
-- gets an offer.
local function offer(key) return offer_readers(key) or offer_lock(key) or offer_slot(key) end

-- When readers free a key, offers the key to the first writer. If no writer waits, all waiting
-- readers get offers. So writers and readers alternate.
local function offer_after_readers(key)
  return offer_lock(key) or offer_slot(key) or offer_readers(key)
end

-- Returns true if a writer waits for a key. First removes the writers whose processes are gone,
-- because they would keep readers out.
local function writer_waits(key)
  local queue = queue_of(key)
  while true do
    local first = taker(queue, 0, 0)
    if not first then return false end
    if publish(first, '') or not ask('ZREM', queue, first) then return true end
  end
end

-- Notifies the processes of a key's readers that a writer has begun to wait for the key.
local function announce_writer(key)
  local notified = {}
  for _, entry in ipairs(ask('ZRANGE', key, 0, -1) or {}) do
    local manager = string.match(entry, '^%x+:(%x+)$')
    if manager and not notified[manager] then
      notified[manager] = true
      ask('PUBLISH', 'aioredlock_ng:' .. manager, '-1 ' .. manager .. ' ' .. key)
    end
  end
end

-- Notifies the first writer of the time until a key held by readers expires, plus one grace as in
-- stand.lua. The writer may have read a later expiry before. Without this message, it would wait
-- for that expiry. Tracking is not enough, because a write by a reader of the writer's own process
-- ends the tracking without a message. Writers whose processes are gone are removed.
local function notify_expiry(key)
  local queue, left = queue_of(key), redis.call('PTTL', key)
  while true do
    local first = taker(queue, 0, 0)
    if not first or notify(first, left + grace_of(first), key) then return end
    if not ask('ZREM', queue, first) then return end
  end
end

-- Removes an entry of a key held by readers. If no entry is left, offers the key to the next
-- waiters. Returns 1 if the entry was there, else 0.
local function leave_readers(key, entry)
  prune(key)
  local last = redis.call('ZREVRANGE', key, 0, 0)[1]
  local removed = redis.call('ZREM', key, entry)
  if not settle(key) then
    offer_after_readers(key)
  elseif entry == last then
    notify_expiry(key)
  end
  return removed
end

-- Adds a member to a queue, or confirms its place there. Prolongs the life of the queue, because a
-- release would notify nobody after the queue has expired. If the processes of the members just
-- before this one are gone, removes these members. Otherwise this member would not learn that it is
-- the first. An empty message tests whether a process is connected, and the process ignores it.
-- Returns true if the member was not in the queue before.
local function enter(queue, ticket, member, life)
  -- ZRANK fails if the user has no rights to queues. A waiter without these rights must not enter,
  -- because it could not leave again. Each hand-over would then wait for this waiter.
  if ask('ZRANK', queue, member) == nil then return false end
  local is_new = ask('ZADD', queue, ticket, member) == 1
  local rank = ask('ZRANK', queue, member) or 0
  while rank > 0 do
    local before = (ask('ZRANGE', queue, rank - 1, rank - 1) or {})[1]
    if not before or publish(before, '') or not ask('ZREM', queue, before) then break end
    rank = rank - 1
  end
  life = life * (1 + 2 * math.min(rank, 15))
  if (ask('PTTL', queue) or 0) < life then ask('PEXPIRE', queue, life) end
  return is_new
end

-- Removes a member from a queue. If the member was the first that accepts its slots, the next
-- member is notified. If the member was the first or the second waiter for a lock, the new second
-- waiter is notified, too.
local function step_out(queue, member, key)
  local limit = limit_of(member) or 0
  local first, rank = taker(queue, limit, 0), ask('ZRANK', queue, member)
  if ask('ZREM', queue, member) ~= 1 then return end
  if first == member then notify_first(queue, key, limit) end
  if limit == 0 and (first == member or rank == 1) then notify_second(queue, key) end
end

-- Returns the queue in which a member waits for a key.
local function queue_for(member, key)
  if is_reader(member) then return readers_of(key) end
  return limit_of(member) and slots_of(key) or queue_of(key)
end

-- Removes a member that no longer wants the key. An offer to this member goes to the next member.
-- If a writer leaves and no other writer waits, the waiting readers may enter.
local function leave(key, member)
  local value, queue = ask('GET', key), queue_for(member, key)
  if is_reader(member) then
    step_out(queue, member, key)
    if ask('ZSCORE', key, 'aioredlock_ng:offer:' .. member) then
      leave_readers(key, 'aioredlock_ng:offer:' .. member)
    end
  elseif value and is_offer_to(value, member) then
    ask('ZREM', queue, member)
    if not offer(key) then ask('DEL', key) end
  else
    step_out(queue, member, key)
    if not value and not taker(queue_of(key), 0, 0) then offer_readers(key) end
  end
end

-- Returns the highest ticket among the waiters for a key; 0 if nobody waits. If the value of the
-- key is an offer, the ticket in the offer counts, too. A ticket above 2^53 is damage, so the
-- result is limited to 2^53.
local function highest_ticket(key, value)
  local offered = tonumber(string.match(value or '', '^aioredlock_ng:offer:(%d+):')) or 0
  local highest = math.max(
    last_ticket(queue_of(key)), last_ticket(slots_of(key)), last_ticket(readers_of(key)), offered
  )
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

-- Returns for each key how many members wait for it; -1 if that is not known. A member to which the
-- key is offered has left the queue, but still counts as waiting. A waiter for a semaphore counts
-- as a waiter for each slot. A semaphore may have a thousand slots. So one request tests whether
-- any slot has a queue of its own, and the queue that the slots share is counted once.
local function waiting(keys, values)
  local queues, lengths, counts = {}, {}, {}
  for _, key in ipairs(keys) do
    queues[#queues + 1] = queue_of(key)
    queues[#queues + 1] = readers_of(key)
  end
  local nobody = #keys > 1 and ask('EXISTS', unpack(queues)) == 0
  for i, key in ipairs(keys) do
    local count, shared = nobody and 0 or length_of(queue_of(key)), slots_of(key)
    local readers = nobody and 0 or length_of(readers_of(key))
    if shared and not lengths[shared] then lengths[shared] = length_of(shared) end
    local others = shared and lengths[shared] or 0
    local member = string.match(values[i] or '', '^aioredlock_ng:offer:%d+:(.+)$')
    if member and not ask('ZRANK', queue_for(member, key), member) then count = count + 1 end
    for _, entry in ipairs(not values[i] and ask('ZRANGE', key, 0, -1) or {}) do
      if string.find(entry, '^aioredlock_ng:offer:') then count = count + 1 end
    end
    counts[i] = math.min(count, others, readers) < 0 and -1 or count + others + readers
  end
  return counts
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

-- The offers that `take` has replaced. The index of an offer is the place of its key in KEYS.
local displaced = {}

-- Sets the first n keys to a token, or none of them. Returns the refusal if a key is held or
-- reserved. The reason for MGET instead of GET is given in extend.lua. MGET returns nothing for
-- keys held by readers and for keys of other types. These keys must be found before the first SET.
-- Otherwise a refusal would leave other keys set.
local function take(n, token, ttl, claim)
  if n == 1 and redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl) then return nil end
  local keys = {unpack(KEYS, 1, n)}
  local values, seen = redis.call('MGET', unpack(keys)), 0
  for i = 1, n do seen = seen + (values[i] and 1 or 0) end
  local hidden = n > 1 and seen < n and ask('EXISTS', unpack(keys)) ~= seen
  for i = 1, n do
    local value = values[i] or hidden and value_of(keys[i])
    if value and not admits(value, claim) then return refusal(i, keys, values) end
  end
  for i = 1, n do
    if values[i] then
      redis.call('SET', keys[i], token, 'PX', ttl)
      displaced[i] = values[i]
    elseif not redis.call('SET', keys[i], token, 'NX', 'PX', ttl) then
      -- There is only one key, and readers hold it. If the key is not a lock, `value_of` raises an
      -- error.
      value_of(keys[i])
      return refusal(i, keys, values)
    end
  end
end

-- Removes a claim's member from the queues of the first n keys, which this member holds now.
-- Notifies the new first member of each queue. If `take` replaced an offer to a waiter for a
-- semaphore, this waiter enters its queue again. If the key is a slot, the claim's member needs no
-- other slot. So other slots that were offered to this member go to the next members.
local function served(n, claim)
  local member = string.match(claim, '^%d+:(.+)$')
  if not member then return end
  for i = 1, n do
    local queue = queue_for(member, KEYS[i])
    ask('ZREM', queue, member)
    local ticket, other = string.match(displaced[i] or '', '^aioredlock_ng:offer:(%d+):(.+)$')
    if other and other ~= member and limit_of(other) then
      -- The displaced member waits for any slot, so it enters the shared queue. The claim's member
      -- may have waited for this key as a lock, in another queue.
      local slots = queue_for(other, KEYS[i])
      ask('ZADD', slots, ticket, other)
      if (ask('PTTL', slots) or 0) < 20000 then ask('PEXPIRE', slots, 20000) end
      if slots ~= queue then notify_first(slots, KEYS[i], limit_of(other)) end
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
