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
local n = tonumber(ARGV[1] or #KEYS)
local keys = {unpack(KEYS, 1, n)}
-- One MGET instead of a GET per key: a semaphore may have a thousand slots.
local values = redis.pcall('MGET', unpack(keys))
if values.err then return values end
local labels = n < #KEYS and redis.pcall('MGET', unpack(KEYS, n + 1)) or {}
local counts = ARGV[2] and waiting(keys, values) or {}
local answers = {}
for i, key in ipairs(keys) do
  -- MGET shows no key of another type. GET raises the error.
  local token = values[i] or redis.pcall('GET', key)
  if type(token) ~= 'table' then
    answers[i] = {token and redis.call('PTTL', key) or -2, token or ''}
  elseif string.find(token.err, 'WRONGTYPE', 1, true) then
    -- pcall: users of locks need no right to TYPE.
    local kind = redis.pcall('TYPE', key)
    answers[i] = {-3, (kind.ok or '') .. ' ' .. redis.call('PTTL', key)}
  else
    return token
  end
  if n < #KEYS or ARGV[2] then answers[i][3] = labels[i] or '' end
  answers[i][4] = counts[i]
end
return answers
