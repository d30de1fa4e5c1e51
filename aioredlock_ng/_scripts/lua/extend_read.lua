-- Renews the entries of several read leases. If a lease was downgraded and the key still has
-- the writer's token, the key becomes a set of readers. So a node that missed the downgrade
-- performs it at the next renewal.
-- KEYS       the keys of all leases; then the fence counters
-- ARGV[1]    ttl in milliseconds, one for all entries
-- ARGV[3i-1] entry of KEYS[i], or the token of the writer's lease that was downgraded
-- ARGV[3i]   after a downgrade: the fence, a minimum for the counter; else ''
-- ARGV[3i+1] the slot of KEYS[i] among the counters
-- Returns    the number of leases if every entry was renewed. Else an array with a number per key:
--            1 renewed, 0 no such entry or a key of another type, -1 held by a writer.
--            If the server refuses a downgrade, the reply is the server's error, and the key keeps
--            the writer's token.
-- The keys are not tracked, because each change by one reader would be reported to all readers.
-- part: readers
local n, renewed, answers = #KEYS - 1, 0, {}
for i = 1, n do
  local key, entry, fence = KEYS[i], ARGV[3 * i - 1], ARGV[3 * i]
  local known, value = pcall(value_of, key)
  local expiry = now_ms() + tonumber(ARGV[1])
  answers[i] = 0
  if known and value == entry then
    -- Another lease of the grant may rely on the present expiry of the key. So the expiry never
    -- becomes earlier.
    local left = redis.call('PTTL', key)
    expiry = math.max(expiry, now_ms() + left)
    -- A full server refuses only the first write of a script, and never a DEL. So the DEL comes
    -- first.
    redis.call('DEL', key)
    local done, problem = pcall(function()
      keep_entry(key, entry, expiry)
      if fence ~= '' then redis.call('ZADD', KEYS[n + 1], 'GT', fence, ARGV[3 * i + 1]) end
    end)
    if not done then
      -- Set the key again. Otherwise the lease would lose this node, and another client could get
      -- the lock.
      redis.call('SET', key, entry, 'PX', left > 0 and left or ARGV[1])
      error(problem, 0)
    end
    redis.pcall('DEL', OWNER .. key)
    -- part: queue
    -- part: offers
    offer_readers(key)
    answers[i] = 1
  elseif known and value == READERS then
    prune(key)
    if redis.call('ZSCORE', key, entry) then
      keep_entry(key, entry, expiry)
      answers[i] = 1
    end
  elseif known and value and not is_offer(value) then
    answers[i] = -1
  end
  renewed = renewed + (answers[i] == 1 and 1 or 0)
end
if renewed == n then return renewed end
return answers
