-- Puts a waiter in the queue of the first key that it cannot get, and returns the time until this
-- node may grant that key. Offers a free key to the first waiter in its queue, so a lost message or
-- an expired offer does not leave a free key unused.
-- KEYS     the lock's keys, in the order in which every waiter asks for them
-- ARGV[1]  claim, see parts/queue.lua
-- ARGV[2]  milliseconds for which the queue lives from now on if this waiter is the first. Each
--          waiter before this one adds twice that time to the life of the queue, but at most 15
--          waiters count. The life of a queue is never shortened.
-- ARGV[3]  milliseconds from now for which keys are reserved for the waiter; 0 reserves none. The
--          reserved keys are those before the key for which the waiter queues.
-- Returns  {left, place, rank}. `left` is the milliseconds until this node may grant; 0 means now,
--          -1 unknown. `place` is the number of the key for which the waiter queues, from 1. `rank`
--          is the number of waiters before this one; -1 if this waiter could not be put in the
--          queue.
-- part: queue
-- part: admits
-- part: value
-- part: enter
local claim = ARGV[1]
local ticket, member = ticket_and_member(claim)
local place, values = #KEYS, {}
for i, key in ipairs(KEYS) do
  local value = value_of(key)
  values[i] = value
  if value and not admits(value, claim) then
    place = i
    break
  end
end
local key = KEYS[place]
local queue = QUEUE .. key

local is_new, rank = enter(queue, ticket, member, ARGV[2])
if #KEYS > 1 or is_new and values[place] == READERS then
  -- part: entries
  if is_new and values[place] == READERS then announce_writer(key) end
  for i = 1, place - 1 do
    local kept = offer_to(claim)
    -- An unneeded SET would end the tracking of the key, so an offer that lives long enough is not
    -- set again.
    local is_kept = values[i] == kept and redis.call('PTTL', KEYS[i]) > grace_of(member)
    if not is_kept and tonumber(ARGV[3]) > 0 then ask('SET', KEYS[i], kept, 'PX', ARGV[3]) end
    step_out(QUEUE .. KEYS[i], member, KEYS[i])
  end
  for i = place + 1, #KEYS do leave(KEYS[i], member) end
end

local value = values[place]
if not value then
  -- part: offers
  if offer(key) then value = value_of(key) end
  rank = ask('ZRANK', queue, member) or -1
end
if value and is_offer_to(value, member) then return {0, place, 0} end
if not value or admits(value, claim) then return {0, place, rank} end
local left, offered = redis.call('PTTL', key), is_offer(value)
-- The second waiter must know when the key expires, in case the first waiter and the holder die
-- together.
if rank == 0 and not offered then
  -- part: second
  notify_second(queue, key)
end
if left < 0 or (rank > 1 and not offered) then return {-1, place, rank} end
-- Each member before this one may let an offer expire, and an offer lives one grace. A writer waits
-- one grace longer for a set of readers. The set may consist of offers only, and readers request
-- the key when the set expires. If a writer requested the key at the same time, neither side might
-- get enough votes.
local before = math.max(rank, 0) + (value == READERS and 1 or 0)
return {left + before * grace_of(member), place, rank}
