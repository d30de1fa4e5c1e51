-- Returns the token and the remaining time of each key. Writes nothing.
-- KEYS     the lock's keys; then, if labels are asked for, the key of each label
-- ARGV[1]  how many keys the lock has; nothing if neither labels nor queues are asked for
-- ARGV[2]  anything if queues are asked for; else nothing
-- Returns  for each key {remaining milliseconds, token or ''}. The time is -1 if the key does not
--          expire, and -2 if there is no key. A key of another type has the time -3, and its token
--          is '<type or nothing> <remaining ms>'.
--          If labels or queues are asked for, the label or '' comes next.
--          If queues are asked for, the number of waiters comes last; -1 if it is not known.
-- part: queue
local answers, n = {}, tonumber(ARGV[1] or #KEYS)
for i = 1, n do
  local token = redis.pcall('GET', KEYS[i])
  if type(token) ~= 'table' then
    answers[i] = {token and redis.call('PTTL', KEYS[i]) or -2, token or ''}
  elseif string.find(token.err, 'WRONGTYPE', 1, true) then
    -- pcall: users of locks need no right to TYPE.
    local kind = redis.pcall('TYPE', KEYS[i])
    answers[i] = {-3, (kind.ok or '') .. ' ' .. redis.call('PTTL', KEYS[i])}
  else
    return token
  end
  if n < #KEYS then
    -- pcall: a key of another type must not end the script. It is no label.
    local label = redis.pcall('GET', KEYS[n + i])
    answers[i][3] = type(label) == 'string' and label or ''
  end
  if ARGV[2] then
    answers[i][3] = answers[i][3] or ''
    answers[i][4] = waiting(KEYS[i], type(token) == 'string' and token)
  end
end
return answers
