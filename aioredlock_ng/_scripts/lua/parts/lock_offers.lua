-- Offers of a key to the waiters in its own queue. parts/queue.lua explains offers. Scripts include
-- it before this part.

-- Offers a key to the first member of the key's own queue. Returns the ticket of that member; false
-- if no member gets the offer.
local function offer_lock(key)
  local queue = QUEUE .. key
  while true do
    local line = ask('ZRANGE', queue, 0, 1, 'WITHSCORES') or {}
    local member, ticket, second = line[1], line[2], line[3]
    if not member then return false end
    local heard = notify(member, 0, key)
    if not ask('ZREM', queue, member) then return false end
    if heard then
      local grace = math.max(1, grace_of(member))
      if not ask('SET', key, offer_to(ticket .. ':' .. member), 'PX', grace) then return false end
      if second then notify(second, grace, key) end
      return tonumber(ticket)
    end
  end
end
