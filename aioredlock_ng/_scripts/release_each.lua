-- Frees each key that still holds the token of its attempt, as release.lua would do one after the
-- other.
-- KEYS     one per attempt
-- ARGV[i]  token of KEYS[i]
-- Returns  the number of keys when each was freed; else an array per key: 1 freed, 0 not ours. It
--          ends before a key that the server refuses to tell or to delete: that one and those behind
--          it are to be asked one by one.
local freed, answers, queues, offered = 0, {}, {}, nil
for i, key in ipairs(KEYS) do queues[i] = 'aioredlock_ng:queue:' .. key end
if redis.pcall('EXISTS', unpack(queues)) ~= 0 then
  -- part: queue
  offered = offer
end
for i, key in ipairs(KEYS) do
  local holder, gone = redis.pcall('GET', key), 0
  if holder == ARGV[i] then
    gone = offered and offered(key) and 1 or redis.pcall('DEL', key)
  elseif type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
    return answers
  end
  if type(gone) == 'table' then return answers end
  answers[i] = gone
  freed = freed + gone
end
if freed == #KEYS then return freed end
return answers
