-- Frees one key for each of several attempts if the key still holds the attempt's token. Each
-- attempt gets the answer of release.lua.
-- KEYS     one key per attempt
-- ARGV[i]  token of KEYS[i]
-- Returns  the number of keys if each was deleted. Else an array with an answer per key: 1 deleted,
--          {1, ticket} offered to a waiter, 0 not held by the token. The array ends before the
--          first key whose release failed. The caller repeats the releases that got no answer, one
--          by one.
local n, deleted, answers, offered = #KEYS, 0, {}, nil
-- part: waiters
if not nobody_waits then
  -- part: queue
  -- part: offers
  -- part: tickets
  offered = function(key) return offer(key) and {1, highest_ticket(key, ask('GET', key))} end
end
for i, key in ipairs(KEYS) do
  local holder, answer = redis.pcall('GET', key), 0
  if holder == ARGV[i] then
    answer = offered and offered(key) or redis.pcall('DEL', key)
  elseif not holder then
    if offered then offered(key) end
  elseif type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
    return answers
  end
  if type(answer) == 'table' and answer.err then return answers end
  answers[i] = answer
  deleted = deleted + (answer == 1 and 1 or 0)
end
if deleted == n then return deleted end
return answers
