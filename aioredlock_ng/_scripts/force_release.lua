-- Deletes keys that hold one of several tokens. This script is the last resort of an operator.
-- KEYS     the lock's keys; then, with fencing, the fence counters
-- ARGV[1]  how many tokens follow ARGV[2]
-- ARGV[2]  1 to delete also keys of other types and strings that do not expire. 0 to refuse such
--          keys before anything is written.
-- ARGV[3]  the tokens, from 3 on
-- ARGV[i]  then, with fencing: a fence that the counters must reach at least; then the slots of the
--          lock's keys among the counters, each slot once
-- Returns  how many keys were deleted. A key with a queue is offered to the first waiter, and
--          counts as deleted. The error 'NOTALOCK <type or nothing> <remaining ms>' refuses a key.
--          Locks are strings that expire. Any other key may be somebody's data.
-- The counters rise above the holder's fence. Otherwise the holder may repair this node before the
-- other nodes have deleted the key.
-- A counter above 8e15 is damage, because no fence is so high. It stays as it is, and raises no
-- other counter. From 2^53 on, adding 1 would not change it.
-- part: queue
local n, tokens, last = #KEYS, {}, tonumber(ARGV[1]) + 2
for i = 3, last do tokens[ARGV[i]] = true end
if ARGV[last + 1] then n = n - 1 end
local doomed = {}
for i = 1, n do
  local holder = redis.pcall('GET', KEYS[i])
  local foreign, kind = type(holder) == 'table', 'string'
  if foreign then
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
    -- pcall: users of locks need no right to TYPE.
    kind = redis.pcall('TYPE', KEYS[i]).ok or ''
  end
  if foreign or tokens[holder] then
    local left = redis.call('PTTL', KEYS[i])
    if ARGV[2] ~= '1' and (foreign or left == -1) then
      return {err = 'NOTALOCK ' .. kind .. ' ' .. left}
    end
    doomed[#doomed + 1] = KEYS[i]
  end
end
if ARGV[last + 1] then
  local fence = tonumber(ARGV[last + 1])
  for i = last + 2, #ARGV do
    local counter = tonumber(redis.call('ZSCORE', KEYS[n + 1], ARGV[i]) or 0)
    if counter >= fence and counter <= 8e15 then fence = counter + 1 end
  end
  for i = last + 2, #ARGV do
    redis.call('ZADD', KEYS[n + 1], 'GT', string.format('%.0f', fence), ARGV[i])
  end
end
for i = 1, #doomed do
  if not offer(doomed[i]) then redis.call('DEL', doomed[i]) end
end
return #doomed
