-- Frees the keys of one attempt that still hold its token, and deletes the labels of that attempt.
-- KEYS     the lock's keys; then, with labels, the key of each label
-- ARGV[1]  token
-- ARGV[2]  with labels: how many keys the lock has
-- Returns  how many of the lock's keys were freed. A key with a queue is offered to the first
--          waiter; any other key is deleted.
-- MGET instead of GET: see extend.lua. A key of another type does not hold the token.
-- part: slots
if #KEYS == 1 and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  local queue = 'aioredlock_ng:queue:' .. KEYS[1]
  if redis.pcall('EXISTS', queue, (slots_of(KEYS[1])) or queue) == 0 then
    return redis.call('DEL', KEYS[1])
  end
end
-- part: queue
local freed, n = 0, tonumber(ARGV[2] or #KEYS)
for i, holder in ipairs(redis.call('MGET', unpack(KEYS, 1, n))) do
  if holder == ARGV[1] then
    if not offer(KEYS[i]) then redis.call('DEL', KEYS[i]) end
    freed = freed + 1
    if n < #KEYS then redis.call('DEL', KEYS[n + i]) end
  elseif n < #KEYS then
    -- The next holder of the key may have written its own label already.
    local label = redis.pcall('GET', KEYS[n + i])
    local own = string.sub(ARGV[1], 1, 16) .. ' '
    if type(label) == 'string' and string.find(label, own, 1, true) == 1 then
      redis.call('DEL', KEYS[n + i])
    end
  end
end
return freed
