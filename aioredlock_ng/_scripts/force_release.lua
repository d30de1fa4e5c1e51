-- Deletes keys that hold one of some tokens: an operator's last resort.
-- KEYS     the lock's keys; then, with fencing, the fence counters
-- ARGV[1]  how many tokens
-- ARGV[2]  1: delete keys of other types too, and strings that do not expire; 0: refuse them, before
--          anything is written
-- ARGV[3]  the tokens
-- ARGV[i]  then, with fencing: a fence that counters are raised to at least; the slots of the keys among them, each once
-- Returns  how many keys were deleted (one that somebody waits for is offered to the first in its queue); or the error 'NOTALOCK <type or nothing> <remaining ms>' of a key
--          that it refuses: locks are strings that expire, and other keys may be somebody's data.
-- Counters rise above the holder's fence: else a holder that hears of one node before the others are asked repairs them.
-- A counter above 8e15 stays: no fence is above it, and from 2^53 on it could not be raised by one.
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
    -- pcall: locks do not need the right to TYPE.
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
  for i = last + 2, #ARGV do redis.call('ZADD', KEYS[n + 1], 'GT', string.format('%.0f', fence), ARGV[i]) end
end
for i = 1, #doomed do
  if not offer(doomed[i]) then redis.call('DEL', doomed[i]) end
end
return #doomed
