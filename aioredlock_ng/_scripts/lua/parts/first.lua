-- Messages to the head of a queue. parts/queue.lua explains messages. Scripts include it and
-- parts/members.lua before this part.

-- Notifies the first member of a queue that it is the first now. For a lock, `limit` is 0. A waiter
-- for a semaphore accepts only the slots up to its own limit. So for each slot up to `limit`, the
-- first member that accepts the slot is notified. `key` is the key of the lock, or of any slot of
-- the semaphore. The message to a waiter for a semaphore names slot 1, which every waiter accepts.
-- Members whose process is gone are removed.
local function notify_first(queue, key, limit)
  local slot = 0
  repeat
    local first = taker(queue, slot, 0)
    if not first then return end
    local own = limit_of(first)
    if notify(first, -1, own and slots_up_to(1, key)[1] or key) then
      if not own then return end
      slot = own + 1
    elseif not ask('ZREM', queue, first) then
      return
    end
  until slot > limit
end
