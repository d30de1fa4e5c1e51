-- Runs one command on a key for the holder of a fence, unless a newer fence was seen there; remembers the newest.
-- KEYS[1]    the data's key, of any type
-- KEYS[2]    the key that remembers the newest fence of KEYS[1]; nothing else writes it
-- ARGV[1]    fence: a decimal integer, 0 to 2^53 - 1
-- ARGV[2]    milliseconds that the fence outlives data that expires or is deleted; '' for ever
-- ARGV[3]    command that takes the key first: GET, SET, HGETALL, HSET, DEL, ...
-- ARGV[4..]  what the command takes after the key
-- Returns    the command's reply; or the error "STALEFENCE <newest fence>", and then the command did not run.
-- Numbers are doubles here: exact below 2^53, where two of them might pass for equal. The fence is stored as it was given,
-- because tostring() keeps 14 digits of its 16.
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
local reply = redis.call(ARGV[3], KEYS[1], unpack(ARGV, 4))
local keep = tonumber(string.match(ARGV[2], '^%d+$'))
local left = keep and redis.call('PTTL', KEYS[1]) or -1
if left == -1 then
  redis.call('PERSIST', KEYS[2])
else
  redis.call('PEXPIRE', KEYS[2], math.max(left, 0) + keep)
end
return reply
