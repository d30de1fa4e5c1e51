-- Leaves the key of a lock's turn tracked on this connection, so that turn_over.lua is heard of, and the lock's own key not.
-- KEYS[1]  the key of the turn
-- ARGV[1]  the lock's key. Not one of KEYS: where a script reads any key, servers before 7.2 track all of its KEYS.
-- ARGV[2]  the key of the most turns of others that anybody lets pass. Nor is it one of KEYS.
-- ARGV[3]  how many the caller will have let pass at the end of this one, 1 or more
-- ARGV[4]  milliseconds for which that is remembered
-- Returns  while the lock is held: the most that anybody has said of late, the caller included; else 0
-- GETEX and not GET: see release.lua. Where SET is refused, on a full server say, everybody is told its own.
redis.call('GET', KEYS[1])
if not redis.pcall('GETEX', ARGV[1]) then return 0 end
local most, own = redis.pcall('GETEX', ARGV[2]), tonumber(ARGV[3])
most = type(most) == 'string' and tonumber(most) or 0
if most > own then return most end
redis.pcall('SET', ARGV[2], ARGV[3], 'PX', ARGV[4])
return own
