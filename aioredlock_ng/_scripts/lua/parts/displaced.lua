-- The return of a displaced waiter to its queue. A waiter is displaced if another member replaces
-- its offer. parts/queue.lua explains offers. Scripts include it and parts/members.lua before this
-- part.

-- The least remaining life in milliseconds of a queue that a displaced waiter has entered.
local DISPLACED_LIFE = 20000

-- If the value of a key was an offer to a waiter for a semaphore, this waiter enters its queue
-- again. `member` has replaced the offer. The displaced waiter waits for any slot, so it enters the
-- shared queue. If `member` waits in another queue, the first member of the shared queue is
-- notified.
local function wait_again(value, key, member)
  local ticket, other = claim_in(value)
  if not other or other == member or not limit_of(other) then return end
  local slots = queue_for(other, key)
  ask('ZADD', slots, ticket, other)
  if (ask('PTTL', slots) or 0) < DISPLACED_LIFE then
    -- A queue that cannot expire would outlive its members, so the member leaves it again.
    if not ask('PEXPIRE', slots, DISPLACED_LIFE) then ask('ZREM', slots, other) end
  end
  if slots ~= queue_for(member, key) then
    -- part: first
    notify_first(slots, key, limit_of(other))
  end
end
