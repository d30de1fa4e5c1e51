-- Sets `listeners` to the number of connections that receive the messages for `manager`, a process.
-- 0 means that the process is gone. PUBSUB NUMSUB sends no message, so it wakes no process. A user
-- may have no right to it. Then an empty message, which the process ignores, gets the same number.
-- The caller declares `manager` and `listeners`, and includes parts/names.lua. The part is not a
-- function, because creating a function would slow each entry into a queue.
listeners = redis.pcall('PUBSUB', 'NUMSUB', CHANNEL .. manager)[2]
if not listeners then listeners = redis.pcall('PUBLISH', CHANNEL .. manager, '') end
