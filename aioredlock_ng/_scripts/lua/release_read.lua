-- Ends a read lease, and deletes its label. The lease may be a writer's lease that was downgraded.
-- KEYS[1]  the lock's key
-- KEYS[2]  with a label: the key of the label
-- ARGV[1]  entry, or the token of a writer's lease that was downgraded
-- Returns  1 if the key had the entry or the token; else 0, for example for a key of another type.
--          If no entry is left, the key is offered to the next waiters.
-- part: readers
local key, entry, n, freed = KEYS[1], ARGV[1], 1, 0
-- part: waiters
-- Only a lease of this library has the entry, even if another client has removed the key's expiry.
local expiry = redis.pcall('ZSCORE', key, entry)
local is_valid = type(expiry) == 'string' and tonumber(expiry) >= now_ms()
-- Without waiters a release must not spend time on creating the functions of parts/entries.lua.
if is_valid and nobody_waits then
  freed = redis.call('ZREM', key, entry)
  if redis.call('EXISTS', key) == 1 then settle(key) end
else
  -- part: queue
  -- part: entries
  if is_valid then
    freed = leave_readers(key, entry)
  else
    local known, value = pcall(value_of, key)
    -- A key of another type has no entry. A refusal would warn, and would be sent again in vain.
    if not known and not string.find(value.err or value, 'WRONGTYPE', 1, true) then
      error(value, 0)
    end
    if value == READERS then
      freed = leave_readers(key, entry)
    elseif value == entry then
      -- The node has missed the downgrade, and so still has the label of the writer.
      redis.pcall('DEL', OWNER .. key)
      if not offer(key) then redis.call('DEL', key) end
      freed = 1
    end
  end
end
if KEYS[2] then redis.call('DEL', KEYS[2]) end
return freed
