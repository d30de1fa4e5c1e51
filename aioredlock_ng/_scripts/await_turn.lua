-- Leaves the key of a lock's turn tracked on this connection, so that turn_over.lua is heard of, and the lock's own key not.
-- KEYS[1]  the key of the turn
-- ARGV[1]  the lock's key. Not one of KEYS: where a script reads any key, servers before 7.2 track all of its KEYS.
-- Returns  1 while the lock is held, else 0
-- GETEX and not GET: see release.lua.
redis.call('GET', KEYS[1])
return redis.pcall('GETEX', ARGV[1]) and 1 or 0
