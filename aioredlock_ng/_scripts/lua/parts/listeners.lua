-- Sets `listeners` to the number of connections that receive the messages for `manager`, a process.
-- 0 means that the process is gone. PUBSUB NUMSUB sends no message, so it wakes no process. If the
-- user has no right to PUBSUB, the number is that of an empty message, which the process ignores.
-- That number includes clients that subscribe to a pattern. If the user has no right to the
-- channel, PUBLISH fails, and `listeners` becomes this error: the process may have had no right to
-- subscribe either, so a 0 would prove nothing. The caller declares `manager` and `listeners`, and
-- includes parts/names.lua. The part is not a function, because creating a function would slow each
-- entry into a queue.
listeners = redis.pcall('PUBSUB', 'NUMSUB', CHANNEL .. manager)[2]
if not listeners or listeners == 0 then
  local heard = redis.pcall('PUBLISH', CHANNEL .. manager, '')
  if not listeners or type(heard) == 'table' then listeners = heard end
end
