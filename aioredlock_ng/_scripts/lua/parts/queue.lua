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
--          '-1 <manager> <key>' notifies a process with read leases that a writer waits. After the
--          messages of a quorum, the process does not share its read grants.
--          '0 <manager> <key>' notifies a process that its read leases were ended by force.
-- The queue is a sorted set, in which the ticket of a member is its score. The set has a key of its
-- own, which expires. Calls about queues use pcall, because an error must not end a script that has
-- set a key. An error can only cost waiters their order or some time.
local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return nil end
  return reply
end

-- part: offer_format

-- Returns the milliseconds of a member's grace.
local function grace_of(member)
  return math.min(tonumber(string.match(member, '[:#](%d+)$')) or 0, LONGEST_GRACE)
end

-- Sends a message to the process of a member, or to a manager. Returns false only if that process
-- is certainly not connected.
local function publish(name, message)
  local manager, heard = string.match(name, '^%x+'), nil
  -- part: message
  return heard ~= 0
end

-- Returns true if the process of a member is certainly not connected.
local function is_gone(member)
  local manager, listeners = string.match(member, '^%x+'), nil
  if manager then
    -- part: listeners
  end
  return listeners == 0
end

local function notify(member, time, key)
  return publish(member, time .. ' ' .. member .. ' ' .. key)
end
