-- Ends the waiting of a member: it leaves the queue of each key, and an offer to it goes to the next.
-- KEYS     the keys
-- ARGV[1]  member
-- Returns  1
-- part: queue
for _, key in ipairs(KEYS) do leave(key, ARGV[1]) end
return 1
