-- Returns the token and the remaining time of each key. Writes nothing.
-- KEYS     the lock's keys; then, if labels are asked for, the key of each label
-- ARGV[1]  how many keys the lock has; left out if neither labels nor queues are asked for
-- ARGV[2]  any text if queues are asked for; else left out
-- Returns  for each key {remaining milliseconds, token or ''}. The time is -1 if the key does not
--          expire, and -2 if there is no key. A key of another type has the time -3, and its token
--          is '<type or nothing> <remaining ms>'.
--          If labels or queues are asked for, the label or '' comes next.
--          If queues are asked for, the number of waiters comes next; -1 if it is not known.
--          If readers hold the key, its token is READERS of parts/readers.lua. An empty label, a
--          number of waiters and an array always follow. The number is -1 if queues are not asked
--          for. The array has three items per read lease: its entry, its remaining milliseconds,
--          and its label or ''.
-- part: counts
local n = tonumber(ARGV[1] or #KEYS)
local keys = {unpack(KEYS, 1, n)}
-- One MGET reads all keys, because a semaphore may have a thousand slots.
local values = redis.pcall('MGET', unpack(keys))
if values.err then return values end
local labels = n < #KEYS and redis.pcall('MGET', unpack(KEYS, n + 1)) or {}
local counts = ARGV[2] and waiting(keys, values) or {}
local answers = {}
for i, key in ipairs(keys) do
  -- MGET returns nothing for a key of another type. GET returns an error, which names the reason.
  local token = values[i] or redis.pcall('GET', key)
  local readers = nil
  if type(token) == 'table' and has_readers(key) then
    token, readers = READERS, {}
    local entries, now = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), now_ms()
    for at = 1, #entries, 2 do
      local entry, left = entries[at], tonumber(entries[at + 1]) - now
      if left >= 0 and not is_offer(entry) then
        local label = OWNER .. key .. ':' .. string.sub(entry, 1, 16)
        label = n < #KEYS and redis.pcall('GET', label)
        readers[#readers + 1] = entry
        readers[#readers + 1] = left
        readers[#readers + 1] = type(label) == 'string' and label or ''
      end
    end
  end
  if type(token) ~= 'table' then
    answers[i] = {token and redis.call('PTTL', key) or -2, token or ''}
  elseif string.find(token.err, 'WRONGTYPE', 1, true) then
    -- The call is a pcall, because a user of locks may have no right to TYPE.
    local kind = redis.pcall('TYPE', key)
    answers[i] = {-3, (kind.ok or '') .. ' ' .. redis.call('PTTL', key)}
  else
    return token
  end
  if n < #KEYS or ARGV[2] then answers[i][3] = labels[i] or '' end
  answers[i][4] = counts[i]
  if readers then answers[i] = {answers[i][1], READERS, '', counts[i] or -1, readers} end
end
return answers
