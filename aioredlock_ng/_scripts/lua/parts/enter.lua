-- Adds members to queues. parts/queue.lua explains queues. Scripts include it before this part.

-- Adds a member to a queue, or confirms its place there. Prolongs the life of the queue, because a
-- release would notify nobody after the queue has expired. If the processes of the members just
-- before this one are gone, removes these members. Otherwise this member would not learn that it is
-- the first. An empty message tests whether a process is connected, and the process ignores it.
-- Returns true if the member was not in the queue before, and its place, from 0; -1 if the member
-- could not be added.
local function enter(queue, ticket, member, life)
  -- ZRANK fails if the user has no rights to queues. A waiter without these rights must not enter,
  -- because it could not leave again. Each hand-over would then wait for this waiter.
  local rank = ask('ZRANK', queue, member)
  if rank == nil then return false, -1 end
  local is_new = not rank
  if ask('ZADD', queue, 'CH', ticket, member) == 1 then rank = ask('ZRANK', queue, member) end
  rank = rank or -1
  while rank > 0 do
    local before = (ask('ZRANGE', queue, rank - 1, rank - 1) or {})[1]
    if not before or publish(before, '') or not ask('ZREM', queue, before) then break end
    rank = rank - 1
  end
  life = life * (1 + 2 * math.min(math.max(rank, 0), 15))
  if (ask('PTTL', queue) or 0) < life then ask('PEXPIRE', queue, life) end
  return is_new and rank >= 0, rank
end
