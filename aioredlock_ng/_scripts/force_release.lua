-- Deletes keys that hold one of some tokens, or no text at all: an operator's last resort.
-- KEYS     the lock's keys; then, with fencing, the fence counters
-- ARGV[1]  how many tokens; then those
-- ARGV[i]  then, with fencing: a fence that counters are raised to at least; the slots of the keys among them, each once
-- Returns  how many keys were deleted.
-- Counters rise above the holder's fence: else a holder that hears of one node before the others are asked repairs them.
local n, tokens, last = #KEYS, {}, tonumber(ARGV[1]) + 1
for i = 2, last do tokens[ARGV[i]] = true end
if ARGV[last + 1] then
  n = n - 1
  local fence = tonumber(ARGV[last + 1])
  for i = last + 2, #ARGV do
    local counter = tonumber(redis.call('ZADD', KEYS[n + 1], 'INCR', 0, ARGV[i]))
    if counter >= fence then fence = counter + 1 end
  end
  for i = last + 2, #ARGV do redis.call('ZADD', KEYS[n + 1], string.format('%.0f', fence), ARGV[i]) end
end
local deleted = 0
for i = 1, n do
  local holder = redis.pcall('GETEX', KEYS[i])
  if type(holder) == 'table' then
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
    deleted = deleted + redis.call('DEL', KEYS[i])
  elseif tokens[holder] then
    deleted = deleted + redis.call('DEL', KEYS[i])
  end
end
return deleted
