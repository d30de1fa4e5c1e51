-- Offers of slots to the waiters for a semaphore. parts/queue.lua explains offers. Scripts include
-- it before this part.
-- part: tickets
-- part: members
-- part: precedes

local function reserve(key, ticket, member, milliseconds)
  return ask('SET', key, offer_to(ticket .. ':' .. member), 'PX', math.max(1, milliseconds))
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
  if #slots > 1 then
    table.sort(slots)
    table.sort(offers, function(a, b)
      return a[1] < b[1] or (a[1] == b[1] and precedes(a[2], b[2]))
    end)
  end
  local highest = math.max(last_ticket((slots_of(key))), offers[#offers][1])
  local now = '0:' .. string.format('%.0f', math.min(highest, LARGEST_TICKET))
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

-- Offers a slot to the first member of `queue` that accepts the slot. Returns false if no member
-- gets the offer. If a process died, many members may be gone. So after the first of them, each
-- further member is tested before the call of `share_out`, which reads all slots.
local function offer_one_of(queue, slot, key)
  local at, is_doubtful = 0, false
  while true do
    local line = ask('ZRANGE', queue, at, at + 1, 'WITHSCORES') or {}
    local member, ticket, second = line[1], line[2], line[3]
    if not member then return false end
    if (limit_of(member) or 0) < slot then
      at = at + 1
    else
      if not ask('ZREM', queue, member) then return false end
      if not (is_doubtful and is_gone(member)) and share_out(key, slot, ticket, member) then
        if second and not takes(second, slot) then second = taker(queue, slot, at + 1) end
        if second then notify(second, grace_of(member), key) end
        return true
      end
      is_doubtful = true
    end
  end
end
