-- Run one command on a key, unless the key has seen a newer fence. Remember the newest fence.
-- KEYS[1]    key of the data, of any type
-- KEYS[2]    key of the newest fence of KEYS[1]; only this script writes it
-- ARGV[1]    fence: a decimal integer, 0 to 2^53 - 1
-- ARGV[2]    milliseconds to keep the fence after expiry or deletion of the data; '' means for ever
-- ARGV[3]    command whose first argument is the key: GET, SET, HGETALL, HSET, DEL, ...
-- ARGV[4..]  arguments of the command after the key
-- Returns    the reply of the command, which may be an error, or the error "STALEFENCE <newest
--            fence>". After that error the command did not run.
-- Lua numbers are doubles, which are exact below 2^53. Above 2^53, two different fences could be
-- taken for equal. The fence is stored as given, because tostring() keeps only 14 of 16 digits.
local fence = tonumber(string.match(ARGV[1], '^%d+$'))
if not fence or fence >= 2 ^ 53 then
  return redis.error_reply('ERR the fence must be an integer from 0 to 2^53 - 1')
end
local stored = redis.call('GET', KEYS[2]) or '0'
local seen = tonumber(string.match(stored, '^%d+$'))
if not seen then
  return redis.error_reply('ERR the key of the newest fence holds something else')
end
if fence < seen then
  return redis.error_reply('STALEFENCE ' .. stored)
end
if fence > seen then
  redis.call('SET', KEYS[2], ARGV[1])
end
-- With redis.call, a command that the server refuses would end the script here. The key of the
-- fence would then never expire.
local reply = redis.pcall(ARGV[3], KEYS[1], unpack(ARGV, 4))
local keep = tonumber(string.match(ARGV[2], '^%d+$'))
local left = keep and redis.call('PTTL', KEYS[1]) or -1
if left == -1 then
  redis.call('PERSIST', KEYS[2])
else
  redis.call('PEXPIRE', KEYS[2], math.max(left, 0) + keep)
end
return reply
