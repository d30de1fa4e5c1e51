-- Extend a key that holds a given token, for a process that did not acquire the lock.
-- KEYS[1]  the lock's key
-- ARGV[1]  token
-- ARGV[2]  shortest remaining time in milliseconds after the call
-- Returns  1: the key has at least that time. 0: there is no key. 2: the key has another value.
-- The remaining time is never shortened, because the process that acquired the lock relies on it.
local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
  return holder
end
if holder ~= ARGV[1] then return holder and 2 or 0 end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
