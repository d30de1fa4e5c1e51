-- How an acquire takes keys that are free or offered; see parts/queue.lua.
-- part: queue
-- part: admits
-- part: value
-- part: tickets

-- The offers that `take` has replaced. The index of an offer is the place of its key in KEYS.
local displaced = {}

-- Returns the refusal if one of the first n keys is held or reserved; else nil, and the values of
-- these keys. The reason for MGET instead of GET is given in extend.lua. MGET returns nothing for
-- keys held by readers and for keys of other types. If a key is not a lock, `value_of` raises an
-- error.
local function refused_by_holders(n, claim)
  local keys = {unpack(KEYS, 1, n)}
  -- part: hidden
  for i = 1, n do
    local value = values[i] or hidden and value_of(keys[i])
    if value and not admits(value, claim) then return refusal(i, keys, values) end
  end
  return nil, values
end

-- Sets the first n keys to a token, or none of them. Returns the refusal if a key is held or
-- reserved. The first SET comes after all tests, because a refusal must leave no key set.
local function take(n, token, ttl, claim)
  local refused, values = refused_by_holders(n, claim)
  if refused then return refused end
  for i = 1, n do
    redis.call('SET', KEYS[i], token, 'PX', ttl)
    displaced[i] = values[i]
  end
end

-- Removes a claim's member from the queues of the first n keys, which this member holds now.
-- Notifies the new first member of each queue. There is one exception: if the key of a lock was
-- offered to the claim's member, the offer has notified the next member already. The offer of a
-- slot has notified only a member that accepts this slot. If `take` replaced an offer to a waiter
-- for a semaphore, this waiter enters its queue again. If the key is a slot, the claim's member
-- needs no other slot. So other slots that were offered to this member go to the next members.
local function served(n, claim)
  local _, member = ticket_and_member(claim)
  if not member then return end
  -- part: members
  for i = 1, n do
    local key, before, queue = KEYS[i], displaced[i] or '', queue_for(member, KEYS[i])
    ask('ZREM', queue, member)
    local _, other = claim_in(before)
    -- part: displaced
    wait_again(before, key, member)
    local limit = slots_of(key) and limit_of(member) or 0
    local slots = slots_up_to(limit, key)
    for at, value in ipairs(#slots > 0 and ask('MGET', unpack(slots)) or {}) do
      if value and is_offer_to(value, member) then
        -- part: offers
        if not offer(slots[at]) then ask('DEL', slots[at]) end
      end
    end
    if other ~= member or limit > 0 then
      -- part: first
      notify_first(queue, key, limit)
    end
  end
end
