-- Frees one key for each of several attempts if the key still holds the attempt's token. Each
-- attempt gets the answer of release.lua.
-- KEYS     one key per attempt
-- ARGV[i]  token of KEYS[i]
-- Returns  the number of keys if each was freed. Else an array with a number per key: 1 freed, 0
--          not held by the token. The array ends before the first key that met an error. The caller
--          repeats one by one the releases that got no answer.
-- part: slots
local freed, answers, queues, offered = 0, {}, {}, nil
for i, key in ipairs(KEYS) do
  queues[#queues + 1] = 'aioredlock_ng:queue:' .. key
  queues[#queues + 1] = 'aioredlock_ng:readers:' .. key
  queues[#queues + 1] = slots_of(key)
end
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
