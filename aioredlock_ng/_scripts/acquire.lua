-- Takes all keys for one attempt, or none of them.
-- KEYS     the lock's keys, one per resource
-- ARGV[1]  token, fresh for every attempt
-- ARGV[2]  ttl in milliseconds
-- Returns  1: granted. {0, remaining, i...}: another holds at least one; remaining milliseconds of the longest, -1 endless; of
--          several keys, which ones, counted from 1.
-- A refusal reads the held keys, which leaves them tracked on this connection. GET also raises WRONGTYPE, which MGET does not.
-- MGET and not GET: see extend.lua. Keys with one token live equally long: one of them tells.
local token, ttl, n = ARGV[1], ARGV[2], #KEYS
if n > 1 then
  local seen, longest, held = {}, false, {}
  for i, holder in ipairs(redis.call('MGET', unpack(KEYS))) do
    if holder then table.insert(held, i) end
    if holder and not seen[holder] then
      seen[holder] = true
      local left = redis.call('PTTL', KEYS[i])
      if left < 0 or longest == -1 then longest = -1 else longest = math.max(left, longest or 0) end
    end
  end
  if longest then return {0, longest, unpack(held)} end
end
for i = 1, n do
  if not redis.call('SET', KEYS[i], token, 'NX', 'PX', ttl) then
    if i > 1 then redis.call('DEL', unpack(KEYS, 1, i - 1)) end
    redis.call('GET', KEYS[i])
    return {0, redis.call('PTTL', KEYS[i])}
  end
end
return 1
