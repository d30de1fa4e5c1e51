-- Sends `message` to `manager`, a process. Sets `heard` to 0 if that process is certainly not
-- connected. PUBLISH also counts clients that subscribe to a pattern, such as a monitor of all
-- channels. Without NUMSUB, a monitor would make each process look connected. The caller declares
-- `manager`, which may be nil, `message` and `heard`, and includes parts/names.lua. The part is not
-- a function, because creating functions would slow each release to a waiter.
heard = manager and redis.pcall('PUBLISH', CHANNEL .. manager, message)
if type(heard) == 'number' and heard > 0 then
  heard = redis.pcall('PUBSUB', 'NUMSUB', CHANNEL .. manager)[2]
end
