-- Raises the counter to the fence of an attempt to read, if the key still has the attempt's entry.
-- KEYS[1]  the lock's key
-- KEYS[2]  the fence counters
-- ARGV[1]  entry, see parts/readers.lua
-- ARGV[2]  fence
-- ARGV[3]  the counter slot of the key
-- Returns  1: the counter equals the fence now.
--          {0, counter}: the counter is above the fence.
--          {0, 0}: the key does not have the entry.
-- part: readers
if value_of(KEYS[1]) ~= READERS then return {0, 0} end
prune(KEYS[1])
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return {0, 0} end
local counter = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[3]) or 0)
if counter > tonumber(ARGV[2]) then return {0, counter} end
redis.call('ZADD', KEYS[2], 'GT', ARGV[2], ARGV[3])
return 1
