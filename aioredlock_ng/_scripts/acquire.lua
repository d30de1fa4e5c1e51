-- Takes all keys for one attempt, or none of them.
-- KEYS     the lock's keys, one per resource
-- ARGV[1]  token, fresh for every attempt
-- ARGV[2]  ttl in milliseconds
-- Returns  1: granted. {0, remaining}: another holds at least one; remaining milliseconds of the longest, -1 endless.
-- A refusal reads the held key last: that leaves it tracked on this connection. GET also raises WRONGTYPE.
local token, ttl = ARGV[1], ARGV[2]
if #KEYS == 1 then
  if redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl) then return 1 end
  redis.call('GET', KEYS[1])
  return {0, redis.call('PTTL', KEYS[1])}
end
local held, longest = false, 0
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) then
    local left = redis.call('PTTL', key)
    held = true
    if left < 0 or longest < 0 then longest = -1 elseif left > longest then longest = left end
  end
end
if held then return {0, longest} end
for _, key in ipairs(KEYS) do redis.call('SET', key, token, 'PX', ttl) end
return 1
