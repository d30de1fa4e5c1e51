-- Adds members to queues. parts/queue.lua explains queues. Scripts include it before this part.

-- Adds a member to a queue; see parts/entering.lua. Returns true if the member was not in the queue
-- before, and its place.
local function enter(queue, ticket, member, life)
  local is_new, rank = false, -1
  -- part: entering
  return is_new, rank
end
