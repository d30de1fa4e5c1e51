-- Which waiter may take an offered key. parts/queue.lua explains offers. Scripts include it before
-- this part.
-- part: precedes

local function is_offer_to(value, member)
  local _, offered = claim_in(value)
  return offered == member
end

-- Returns true if this value of a lock's key is an offer to the claim's member, or to a member with
-- a later place.
local function admits(value, claim)
  local ticket, member = claim_in(value)
  local own, me = ticket_and_member(claim)
  if not ticket or not own then return false end
  own, ticket = tonumber(own), tonumber(ticket)
  return member == me or own < ticket or (own == ticket and precedes(me, member))
end
