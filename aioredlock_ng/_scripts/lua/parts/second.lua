-- Messages to the second waiter for a lock. parts/queue.lua explains messages. Scripts include it
-- before this part.

-- Notifies the second waiter for a lock of the time until this node may grant the lock to it. The
-- waiter needs this time if the first waiter and the holder crash together. The time is the
-- remaining time of the key plus one grace for the first waiter. If readers hold the key, one more
-- grace follows (see stand.lua). Removes members whose process is gone.
local function notify_second(queue, key)
  while true do
    local second = (ask('ZRANGE', queue, 1, 1) or {})[1]
    local left = second and ask('PTTL', key) or -1
    if left < 0 then return end
    -- A key held by readers is not a string, so GET fails, and two graces apply.
    local before = ask('GET', key) and 1 or 2
    if notify(second, -left - before * grace_of(second), key) then return end
    if not ask('ZREM', queue, second) then return end
  end
end
