-- Offers of free keys to waiters. parts/queue.lua explains offers. Scripts include it before this
-- part. Most keys have waiters in one queue only. So the functions for another queue are created
-- only when that queue has waiters.

-- Offers a key to the first member of the key's own queue. Returns the ticket of that member; false
-- if no member gets the offer.
local function offer_lock(key)
  local offered = false
  -- part: lock_offer
  return offered
end

-- Offers a slot to the first member of the shared queue that accepts the slot. Returns false if no
-- member gets the offer.
local function offer_slot(key)
  local queue, slot = slots_of(key)
  if not queue or ask('EXISTS', queue) == 0 then return false end
  -- part: slots
  return offer_one_of(queue, slot, key)
end

-- Offers a key to all waiting readers, and empties their queue. If the key holds a writer's token,
-- that token is deleted first. At the end, notifies the first waiting writer that it is the first.
-- Returns false if no waiting reader is connected.
local function offer_readers(key)
  local queue = READERS_QUEUE .. key
  local members = ask('ZRANGE', queue, 0, -1) or {}
  if not members[1] then return false end
  -- part: reader_offers
  return offer_to_readers(queue, members, key)
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
