-- Deletes keys that hold one of several tokens.
-- KEYS     the lock's keys; then, with fencing, the fence counters
-- ARGV[1]  how many tokens follow ARGV[2]
-- ARGV[2]  1 to delete also keys of other types and strings that do not expire. 0 to refuse such
--          keys before anything is written.
-- ARGV[i]  from 3 on: the tokens. Then, with fencing: a fence, which is a minimum for the counters,
--          and the counter slots of the lock's keys, each slot once.
-- Returns  the number of deleted keys, plus the number of deleted entries of readers. A key with a
--          queue is offered to the first waiter, and counts as deleted. If a key is not a lock, the
--          reply is the error 'NOTALOCK <type or nothing> <remaining ms>'. Locks are strings that
--          expire, or sets of readers. Any other key may be somebody's data.
-- The counters rise above the holder's fence. Otherwise the holder could repair its lease on this
-- node before the other nodes have deleted the key.
-- part: queue
-- part: entries
-- part: has_readers
-- part: counters
local n, tokens, last = #KEYS, {}, tonumber(ARGV[1]) + 2
for i = 3, last do tokens[ARGV[i]] = true end
if ARGV[last + 1] then n = n - 1 end
local doomed, ended = {}, {}
for i = 1, n do
  local holder = redis.pcall('GET', KEYS[i])
  if type(holder) == 'table' and has_readers(KEYS[i]) then
    holder = nil
    for _, entry in ipairs(live_entries(KEYS[i])) do
      if tokens[entry] then ended[#ended + 1] = {KEYS[i], entry} end
    end
  end
  local foreign, kind = type(holder) == 'table', 'string'
  if foreign then
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
    -- The call is a pcall, because a user of locks may have no right to TYPE.
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
-- A full server refuses ZADD as the first write of a script, but not as a later one. So the writes
-- begin with DEL of the holder's label and the removal of expired entries, which free memory.
for _, key in ipairs(doomed) do redis.pcall('DEL', OWNER .. key) end
for _, lease in ipairs(ended) do prune(lease[1]) end
if ARGV[last + 1] then
  local fence = tonumber(ARGV[last + 1])
  for i = last + 2, #ARGV do
    local counter = tonumber(redis.call('ZSCORE', KEYS[n + 1], ARGV[i]) or 0)
    if counter >= fence and not is_damaged(counter) then fence = counter + 1 end
  end
  for i = last + 2, #ARGV do
    redis.call('ZADD', KEYS[n + 1], 'GT', string.format('%.0f', fence), ARGV[i])
  end
end
for i = 1, #doomed do
  if not offer(doomed[i]) then redis.call('DEL', doomed[i]) end
end
for _, lease in ipairs(ended) do
  leave_readers(lease[1], lease[2])
  -- The keys of readers are not tracked. Without a message, the reader's process would notice only
  -- later that its entry is deleted.
  local manager = string.match(lease[2], '^%x+:(%x+)$')
  if manager then publish(manager, '0 ' .. manager .. ' ' .. lease[1]) end
end
return #doomed + #ended
