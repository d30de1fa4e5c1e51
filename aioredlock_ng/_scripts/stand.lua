-- Puts a waiter in the queue of the first key that it cannot have, and returns when this node may
-- grant that key. Offers a free key to the first in its queue, so a lost message or an expired
-- offer does not leave a free key unused.
-- KEYS     the lock's keys, in the order in which every waiter asks for them
-- ARGV[1]  claim, see parts/queue.lua
-- ARGV[2]  milliseconds that the queue lives from now on. Each of up to 15 waiters before this one
--          adds twice as many. The life of a queue is never shortened.
-- ARGV[3]  for how many milliseconds from now the keys before the one that it queues for are
--          reserved for the waiter; 0 reserves none
-- Returns  {left, place, rank}. Left: milliseconds until this node may grant; 0 now, -1 not known.
--          Place: which of the keys it queues for, from 1. Rank: how many waiters are before this
--          one; -1 if it could not be put in the queue.
-- part: queue
local claim = ARGV[1]
local ticket, member = string.match(claim, '^(%d+):(.+)$')
local place, values = #KEYS, {}
for i, key in ipairs(KEYS) do
  local value = redis.call('GET', key)
  values[i] = value
  if value and not admits(value, claim) then
    place = i
    break
  end
end
local key = KEYS[place]
local queue = queue_of(key)

enter(queue, ticket, member, ARGV[2])
for i = 1, place - 1 do
  local kept = 'aioredlock_ng:offer:' .. claim
  -- An unneeded SET would end the tracking of the key.
  local is_kept = values[i] == kept and redis.call('PTTL', KEYS[i]) > grace_of(member)
  if not is_kept and tonumber(ARGV[3]) > 0 then ask('SET', KEYS[i], kept, 'PX', ARGV[3]) end
  step_out(KEYS[i], member)
end
for i = place + 1, #KEYS do leave(KEYS[i], member) end

local value = redis.call('GET', key)
if not value and offer(key) then value = redis.call('GET', key) end
if value and is_offer_to(value, member) then return {0, place, 0} end
local rank = ask('ZRANK', queue, member) or -1
if not value or admits(value, claim) then return {0, place, rank} end
local left = redis.call('PTTL', key)
if left < 0 or (rank > 1 and not string.match(value, '^aioredlock_ng:offer:')) then
  return {-1, place, rank}
end
-- Each member before this one may let an offer expire, and an offer lives one grace.
return {left + math.max(rank, 0) * grace_of(member), place, rank}
