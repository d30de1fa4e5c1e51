-- Offers of free keys to waiters. parts/queue.lua explains queues, offers and messages.
-- part: queue

local function reserve(key, ticket, member, milliseconds)
  return ask('SET', key, offer_to(ticket .. ':' .. member), 'PX', math.max(1, milliseconds))
end

-- Offers a key to the first member of the key's own queue. Returns false if no member gets the
-- offer.
local function offer_lock(key)
  local queue = QUEUE .. key
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
    local own, other = claim_in(value or '')
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
  local queue, offered = READERS_QUEUE .. key, false
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
      offered = ask('ZADD', key, expiry, offer_to(member)) and true or offered
    end
  end
  if not offered or not pcall(settle, key) then return false end
  notify_first(QUEUE .. key, key, 0)
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
