-- The queue of a lock: the processes that wait for one key, in order of their tickets.
-- Member   '<manager>:<line>:<grace>'. The grace is how many milliseconds an offer to this member
--          lives. The manager is 16 hexadecimal digits, and messages reach it by the channel
--          'aioredlock_ng:<manager>'. A '-' before the digits marks a member that receives no
--          messages, and asks the nodes again by itself.
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

-- Returns the milliseconds of a member's grace, an hour at most. A damaged member in the queue must
-- not produce a number that the caller cannot read.
local function grace_of(member)
  return math.min(tonumber(string.match(member, ':(%d+)$')) or 0, 3600000)
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

-- Sends a message to the first member of the queue. Removes members whose process is gone.
local function notify_first(key, milliseconds)
  local first = ask('ZRANGE', queue_of(key), 0, 0)
  while first and first[1] and not notify(first[1], milliseconds, key) do
    if not ask('ZREM', queue_of(key), first[1]) then return end
    first = ask('ZRANGE', queue_of(key), 0, 0)
  end
end

-- Offers a key to the first member of its queue, and removes that member from the queue. Returns
-- false if nobody waits. A stopped process lets its offer expire. If it stayed in the queue, each
-- hand-over would wait for it. A member that still waits enters again with its old ticket.
local function offer(key)
  local queue = queue_of(key)
  while true do
    local line = ask('ZRANGE', queue, 0, 1, 'WITHSCORES') or {}
    local member, ticket, second = line[1], line[2], line[3]
    if not member then return false end
    local heard = notify(member, 0, key)
    if not ask('ZREM', queue, member) then return false end
    if heard then
      local grace = math.max(1, grace_of(member))
      local value = 'aioredlock_ng:offer:' .. ticket .. ':' .. member
      if not ask('SET', key, value, 'PX', grace) then return false end
      if second then notify(second, grace, key) end
      return true
    end
  end
end

-- Removes a member from a queue. If it was the first, the next member is notified.
local function step_out(key, member)
  local first = ask('ZRANGE', queue_of(key), 0, 0)
  if ask('ZREM', queue_of(key), member) == 1 and first and first[1] == member then
    notify_first(key, -1)
  end
end

-- Removes a member that no longer wants the key. An offer to it goes to the next member.
local function leave(key, member)
  local value = ask('GET', key)
  if value and is_offer_to(value, member) then
    ask('ZREM', queue_of(key), member)
    if not offer(key) then ask('DEL', key) end
  else
    step_out(key, member)
  end
end

-- Returns the highest ticket among the waiters for a key with this value; 0 if nobody waits. A
-- ticket above 2^53 is damage, and counts as 2^53.
local function highest_ticket(key, value)
  local last = ask('ZREVRANGE', queue_of(key), 0, 0, 'WITHSCORES') or {}
  local offered = string.match(value or '', '^aioredlock_ng:offer:(%d+):')
  return math.min(math.max(tonumber(last[2]) or 0, tonumber(offered) or 0), 9007199254740992)
end

-- Returns how many members wait for a key with this value; -1 if that is not known. The
-- member of an offer has left the queue, and still waits. ZCARD would need a right that waiting
-- does not need.
local function waiting(key, value)
  local last = ask('ZREVRANGE', queue_of(key), 0, 0)
  if not last then return -1 end
  local count = 0
  if last[1] then
    local rank = ask('ZRANK', queue_of(key), last[1])
    if not rank then return -1 end
    count = rank + 1
  end
  local member = string.match(value or '', '^aioredlock_ng:offer:%d+:(.+)$')
  if member and not ask('ZRANK', queue_of(key), member) then count = count + 1 end
  return count
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
-- the new first member, because the offer before it no longer exists.
local function served(n, claim)
  local member = string.match(claim, '^%d+:(.+)$')
  if not member then return end
  for i = 1, n do
    ask('ZREM', queue_of(KEYS[i]), member)
    notify_first(KEYS[i], -1)
  end
end
