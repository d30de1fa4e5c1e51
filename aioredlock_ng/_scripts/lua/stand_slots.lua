-- Puts a waiter in the queue of a semaphore, and returns the time until this node may grant a slot.
-- Offers free slots to the first waiters in the queue, so a lost message or an expired offer does
-- not leave a free slot unused.
-- KEYS     the keys of all slots that the waiter accepts
-- ARGV[1]  claim, see parts/queue.lua
-- ARGV[2]  milliseconds that the queue lives from now on, see stand.lua
-- Returns  {left, rank, slot, slot, ...}. `left` is the milliseconds until this node may grant; 0
--          means now, -1 unknown. The slots are those that this node may grant at that time, at
--          most eight. `rank` is the number of waiters before this one; -1 if this waiter could not
--          be put in the queue. If no waiter before this one accepts this waiter's highest slot,
--          the rank is 0. If exactly one waiter before this one accepts that slot, the rank is 1.
-- The reason for MGET instead of GET is given in extend.lua.
-- part: queue
-- part: admits
-- part: members
-- part: enter
local claim = ARGV[1]
local ticket, member = ticket_and_member(claim)
local queue = slots_of(KEYS[1])
local values, own = redis.call('MGET', unpack(KEYS)), false
for _, value in ipairs(values) do own = own or value and is_offer_to(value, member) end
-- A member with an offer is not put in the queue. Otherwise the member would be offered more slots.
local rank = 0
if not own then
  local _
  _, rank = enter(queue, ticket, member, ARGV[2])
end

-- Returns true if readers hold a slot, or if its key is other data. MGET shows no value then.
local function is_odd(slot)
  return not values[slot] and type(redis.pcall('GET', KEYS[slot])) == 'table'
end

-- If many slots become free at once, many offers in one call would block the server for seconds. So
-- a call offers at most 32 slots. It then notifies the next waiters, whose refreshes offer further
-- slots. If no waiter accepts a slot, no waiter accepts a higher slot either.
local offered, offers_left, is_wanted = false, 32, true
for slot, key in ipairs(KEYS) do
  if offers_left > 0 and not values[slot] and not own and not is_odd(slot) then
    -- part: offers
    local is_offered = offer_readers(key) or offer_lock(key) or is_wanted and offer_slot(key)
    if is_offered then offers_left = offers_left - 1 else is_wanted = false end
    offered = true
  end
end
-- An offer also removes the members before it whose processes are gone.
if offered then
  values = redis.call('MGET', unpack(KEYS))
  rank = ask('ZRANK', queue, member) or -1
end
if offers_left == 0 then
  -- part: first
  notify_first(queue, KEYS[1], #KEYS)
end

-- After 32 offers, the other free slots are for the next waiters.
local is_reserved = offers_left == 0 and rank >= 0
local slots = {}
for slot, value in ipairs(values) do
  own = own or value and is_offer_to(value, member)
  -- A slot without a value may have been offered to readers just now.
  local is_free = not value and not is_reserved and not is_odd(slot)
  local grants = value and admits(value, claim) or is_free
  if grants and #slots < 8 then slots[#slots + 1] = slot end
end

local lowest = 1
if own then rank = 0 end
if rank > 0 then
  local head = taker(queue, 0, 0)
  if head and not takes(head, #KEYS) then lowest = limit_of(head) + 1 end
  local first, at = taker(queue, #KEYS, 0)
  if first == member then
    rank = 0
  elseif taker(queue, #KEYS, at + 1) == member then
    rank = 1
  end
end
if #slots > 0 then return {0, rank, unpack(slots)} end
if rank > 1 then return {-1, rank} end
local soonest, place = -1, nil
for slot = lowest, #KEYS do
  local left = redis.call('PTTL', KEYS[slot])
  if left >= 0 and (soonest < 0 or left < soonest) then soonest, place = left, slot end
end
if soonest < 0 then return {-1, rank} end
return {soonest + math.max(rank, 0) * grace_of(member), rank, place}
