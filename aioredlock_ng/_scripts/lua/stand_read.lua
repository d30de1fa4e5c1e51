-- Puts a waiter in the queue of the readers of a key, and returns the time until this node may
-- grant. Offers a free key to the waiters, so a lost message or an expired offer does not leave a
-- free key unused.
-- KEYS[1]  the lock's key
-- ARGV[1]  claim, see parts/queue.lua
-- ARGV[2]  milliseconds that the queue lives from now on, see stand.lua
-- Returns  {left, 1, rank}. `left` is the milliseconds until this node may grant; 0 means now, -1
--          unknown. `rank` is the number of readers before this one; -1 if this reader could not be
--          put in the queue. All readers enter together. Only the reader with rank 0 asks the
--          server to track the key.
-- part: queue
-- part: entries
-- part: enter
local key, claim = KEYS[1], ARGV[1]
local ticket, member = ticket_and_member(claim)
local queue, offered = READERS_QUEUE .. key, offer_to(member)
local value = value_of(key)
if value == READERS and has_entry(key, offered, now_ms()) then return {0, 1, 0} end
enter(queue, ticket, member, ARGV[2])
if not value or value == READERS and not writer_waits(key) then
  -- A key of readers must not be offered to a waiter for a slot.
  local is_offered
  if value then is_offered = offer_readers(key) else is_offered = offer(key) end
  if not is_offered then return {0, 1, ask('ZRANK', queue, member) or -1} end
  value = value_of(key)
  if value == READERS and has_entry(key, offered, now_ms()) then return {0, 1, 0} end
end
local rank = ask('ZRANK', queue, member) or -1
-- If readers hold the key here, a waiting writer comes before this reader. It is unknown when that
-- writer's lease will begin and end.
local left = value and value ~= READERS and redis.call('PTTL', key) or -1
if left < 0 or rank > 1 then return {-1, 1, rank} end
return {left + math.max(rank, 0) * grace_of(member), 1, rank}
