-- Tells who holds each key and for how long. Writes nothing.
-- KEYS     the lock's keys; then, if asked for, the key of each one's label
-- ARGV[1]  if labels are asked for: how many keys the lock has
-- Returns  per key {remaining milliseconds (-1 endless, -2 no such key), token or '', label or ''}; label only if asked for.
-- pcall: what somebody else wrote in place of a label is none.
local answers, n = {}, tonumber(ARGV[1] or #KEYS)
for i = 1, n do
  local token = redis.call('GET', KEYS[i])
  answers[i] = {redis.call('PTTL', KEYS[i]), token or ''}
  if n < #KEYS then
    local label = redis.pcall('GET', KEYS[n + i])
    answers[i][3] = type(label) == 'string' and label or ''
  end
end
return answers
