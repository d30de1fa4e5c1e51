-- Puts a waiter in the queue of the first key that it cannot have, and tells it what to expect. A
-- free key is offered to the first in its queue, so a waiter that looks also sets right what a lost
-- message or an expired offer left behind.
-- KEYS     the lock's keys, in the order in which every waiter asks for them
-- ARGV[1]  claim
-- ARGV[2]  milliseconds that the queue lives from now on
-- ARGV[3]  milliseconds for which the keys before that one are kept for the waiter from now on; 0:
--          not any more
-- Returns  {left, place, rank}: milliseconds until this node may grant, 0 now, -1 not known; the
--          place of that key among the keys; how many stand before the waiter, -1 where it could not
--          be put in the queue.
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

-- A user without the rights to queues could enter but not leave, and offers would go to its member.
if ask('ZRANK', queue, member) ~= nil then
  ask('ZADD', queue, ticket, member)
  ask('PEXPIRE', queue, ARGV[2])
end
for i = 1, place - 1 do
  local kept = 'aioredlock_ng:offer:' .. claim
  -- Not written again for nothing: one's own write ends the tracking of the key.
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
if left < 0 or (rank > 1 and not string.match(value, '^aioredlock_ng:offer:')) then return {-1, place, rank} end
-- Each member before it may let an offer expire.
return {left + math.max(rank, 0) * grace_of(member), place, rank}
