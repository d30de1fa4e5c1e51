-- Tells who holds each key and for how long. Writes nothing.
-- KEYS     the lock's keys; then, if asked for, the key of each one's label
-- ARGV[1]  if labels or queues are asked for: how many keys the lock has
-- ARGV[2]  if queues are asked for: anything
-- Returns  per key {remaining milliseconds (-1 endless, -2 no such key), token or ''}. Of a key of
--          another type: -3, and '<type or nothing> <remaining ms>' in the token's place. Then, if
--          labels or queues are asked for, the label or ''. Then, if queues are asked for, how many
--          wait for the key; -1: not known.
-- pcall: what somebody else wrote in place of a label is none.
-- part: queue
local answers, n = {}, tonumber(ARGV[1] or #KEYS)
for i = 1, n do
  local token = redis.pcall('GET', KEYS[i])
  if type(token) ~= 'table' then
    answers[i] = {token and redis.call('PTTL', KEYS[i]) or -2, token or ''}
  elseif string.find(token.err, 'WRONGTYPE', 1, true) then
    -- pcall: locks do not need the right to TYPE.
    local kind = redis.pcall('TYPE', KEYS[i])
    answers[i] = {-3, (kind.ok or '') .. ' ' .. redis.call('PTTL', KEYS[i])}
  else
    return token
  end
  if n < #KEYS then
    local label = redis.pcall('GET', KEYS[n + i])
    answers[i][3] = type(label) == 'string' and label or ''
  end
  if ARGV[2] then
    answers[i][3] = answers[i][3] or ''
    answers[i][4] = waiting(KEYS[i], type(token) == 'string' and token)
  end
end
return answers
