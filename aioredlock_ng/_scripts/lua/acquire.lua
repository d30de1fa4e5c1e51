-- Acquires all keys for one attempt, or none of them.
-- KEYS     the lock's keys, one per resource
-- ARGV[1]  token, fresh for every attempt
-- ARGV[2]  ttl in milliseconds
-- ARGV[3]  claim of a waiter, see parts/queue.lua. A first attempt sends '' or nothing.
-- Returns  1 if every key holds the token now; else the refusal, see parts/queue.lua.
local n, claim = #KEYS, ARGV[3] or ''
local is_set = n == 1 and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
if is_set and claim == '' then return 1 end
-- part: taking
local refused = not is_set and take(n, ARGV[1], ARGV[2], claim)
if refused then return refused end
served(n, claim)
return 1
