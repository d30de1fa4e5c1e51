-- Frees those keys of one attempt that still hold its token, and deletes the labels of that attempt.
-- KEYS     the lock's keys; then, where it has labels, the key of each one's label
-- ARGV[1]  token
-- ARGV[2]  where it has labels: how many keys the lock has
-- Returns  how many of the lock's keys were freed. A key that somebody waits for is offered to the
--          first in its queue, any other is deleted.
-- MGET and not GET: see extend.lua. It calls a key of another type missing, and that is not ours.
if #KEYS == 1 and redis.pcall('GET', KEYS[1]) == ARGV[1]
  and redis.pcall('EXISTS', 'aioredlock_ng:queue:' .. KEYS[1]) == 0 then
  return redis.call('DEL', KEYS[1])
end
-- part: queue
local freed, n = 0, tonumber(ARGV[2] or #KEYS)
for i, holder in ipairs(redis.call('MGET', unpack(KEYS, 1, n))) do
  if holder == ARGV[1] then
    if not offer(KEYS[i]) then redis.call('DEL', KEYS[i]) end
    freed = freed + 1
    if n < #KEYS then redis.call('DEL', KEYS[n + i]) end
  elseif n < #KEYS then
    -- The key is gone, or another's by now, and so may be the label.
    local label = redis.pcall('GET', KEYS[n + i])
    if type(label) == 'string' and string.find(label, string.sub(ARGV[1], 1, 16) .. ' ', 1, true) == 1 then
      redis.call('DEL', KEYS[n + i])
    end
  end
end
return freed
