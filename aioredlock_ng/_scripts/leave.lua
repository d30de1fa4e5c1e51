-- Takes a member out of the queue of each key. An offer to this member goes to the next one.
-- KEYS     the keys
-- ARGV[1]  member, see parts/queue.lua
-- Returns  1
-- part: queue
for _, key in ipairs(KEYS) do leave(key, ARGV[1]) end
return 1
