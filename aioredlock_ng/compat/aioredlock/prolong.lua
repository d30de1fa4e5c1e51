-- Prolongs a key that holds a token, for a process that did not acquire it.
-- KEYS[1]  the lock's key
-- ARGV[1]  token
-- ARGV[2]  milliseconds that it shall live at least
-- Returns  1: it lives at least so long. 0: there is no such key. 2: it holds something else.
-- A life is never shortened: the process that acquired the lock counts on all of it.
local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
if holder ~= ARGV[1] then return holder and 2 or 0 end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
