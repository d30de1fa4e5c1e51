-- Frees the keys of one attempt that still hold its token, and deletes the labels of that attempt.
-- KEYS     the lock's keys; then, with labels, the key of each label
-- ARGV[1]  token
-- ARGV[2]  with labels: how many keys the lock has
-- Returns  how many of the lock's keys were freed. A key with a queue is offered to the first
--          waiter; any other key is deleted. A missing key with a queue is offered, too, because
--          the first waiter relies on the holder to notice that the key was deleted; see stand.lua.
--          {1, ticket} if the lock's only key was offered. No waiter for the key has a higher
--          ticket. With this ticket, the process that releases can enter the queue without an
--          attempt.
-- The reason for MGET instead of GET is given in extend.lua.
local n = tonumber(ARGV[2] or #KEYS)
-- Most locks have one key. For such a lock, a release must not spend time on creating functions.
if n == 1 and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  if KEYS[2] then redis.call('DEL', KEYS[2]) end
  -- part: waiters
  if nobody_waits then return redis.call('DEL', KEYS[1]) end
  if locks_only then
    local key, offered = KEYS[1], false
    -- part: lock_offer
    if not offered then return redis.call('DEL', key) end
    local last = is_line and redis.pcall('ZREVRANGE', queue, 0, 0, 'WITHSCORES') or {}
    return {1, math.min(math.max(offered, tonumber(last[2] or 0)), LARGEST_TICKET)}
  end
end
-- part: queue
-- part: offers
-- part: tickets
local freed, offered = 0, false
for i, holder in ipairs(redis.call('MGET', unpack(KEYS, 1, n))) do
  if holder == ARGV[1] then
    offered = offer(KEYS[i])
    if not offered then redis.call('DEL', KEYS[i]) end
    freed = freed + 1
    if n < #KEYS then redis.call('DEL', KEYS[n + i]) end
  else
    -- MGET returns nothing for a key of readers, so PTTL decides. The user may have no right to
    -- EXISTS, which only queues need.
    if not holder and ask('PTTL', KEYS[i]) == -2 then offer(KEYS[i]) end
    if n < #KEYS then
      -- The next holder of the key may have written its own label already. That label must stay.
      local label = redis.pcall('GET', KEYS[n + i])
      local own = string.sub(ARGV[1], 1, 16) .. ' '
      if type(label) == 'string' and string.find(label, own, 1, true) == 1 then
        redis.call('DEL', KEYS[n + i])
      end
    end
  end
end
if n == 1 and offered then return {1, highest_ticket(KEYS[1], ask('GET', KEYS[1]))} end
return freed
