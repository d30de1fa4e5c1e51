-- Restores a read lease on a node that has lost its entry, or has not stored its fence.
-- KEYS[1]  the lock's key
-- KEYS[2]  the node's marker
-- KEYS[3]  the fence counters
-- ARGV[1]  entry, or the token of a writer's lease that was downgraded
-- ARGV[2]  ttl in milliseconds of an entry that is set again
-- ARGV[3]  expected marker, see acquire_guarded.lua
-- ARGV[4]  the lease's fence
-- ARGV[5]  the counter slot of the key
-- Returns  1: the key has the entry or the token, and the counter is not below the fence.
--          0: a writer has the key, or the entry is missing and the counter is above the fence.
--          -1: the entry is missing, and the node is not trusted.
-- A missing entry is added only if the marker is trusted, see repair.lua. A counter above the fence
-- shows that a writer came later.
-- part: readers
local key, entry, fence = KEYS[1], ARGV[1], tonumber(ARGV[4])
local value = value_of(key)
if value == READERS then prune(key) end
local present = value == entry or value == READERS and redis.call('ZSCORE', key, entry)
-- A key that is reserved for a writer counts as missing, see repair.lua.
local is_reserved = value and is_offer(value)
if value and value ~= READERS and not present and not is_reserved then return 0 end
if not present then
  -- part: marker
  if not is_trusted(redis.call('GET', KEYS[2]), ARGV[3]) then return -1 end
  if tonumber(redis.call('ZSCORE', KEYS[3], ARGV[5]) or 0) > fence then return 0 end
  if is_reserved then redis.call('DEL', key) end
  keep_entry(key, entry, now_ms() + tonumber(ARGV[2]))
end
redis.call('ZADD', KEYS[3], 'GT', ARGV[4], ARGV[5])
return 1
