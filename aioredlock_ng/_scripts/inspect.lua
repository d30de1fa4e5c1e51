-- Tells who holds each key and for how long. Writes nothing.
-- KEYS     the lock's keys
-- Returns  per key {remaining milliseconds (-1 endless, -2 no such key), token or ''}.
local answers = {}
for i, key in ipairs(KEYS) do
  local token = redis.call('GET', key)
  answers[i] = {redis.call('PTTL', key), token or ''}
end
return answers
