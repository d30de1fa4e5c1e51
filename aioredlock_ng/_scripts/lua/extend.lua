-- Renews the keys of several leases, if the keys still hold the tokens. Sets no missing key.
-- KEYS       the keys of all leases
-- ARGV[1]    ttl in milliseconds, one for all keys
-- ARGV[i+1]  token that KEYS[i] must hold
-- Returns    #KEYS if every key was renewed. Else an array with a number per key: 1 renewed, 0
--            missing, reserved for a waiter, or of another type, -1 held by another token.
-- The script calls MGET, because GET would raise an error for a key of another type. The other keys
-- would then not be renewed. Redis 6.2 and 7.0 track all KEYS at each read of a tracked call. So
-- with a GET per key, the work would grow with the square of the number of keys.
-- The last MGET renews the tracking, which PEXPIRE has ended.
-- part: offer_format
local ttl, renewed, answers = ARGV[1], 0, {}
for first = 1, #KEYS, 1000 do
  local holders = redis.call('MGET', unpack(KEYS, first, math.min(first + 999, #KEYS)))
  for i, holder in ipairs(holders) do
    local at = first + i - 1
    if holder == ARGV[at + 1] then
      -- pcall returns the error in the server's own words, which the log shows.
      local done = redis.pcall('PEXPIRE', KEYS[at], ttl)
      if type(done) == 'table' then return done end
      renewed = renewed + 1
      answers[at] = 1
    else
      answers[at] = holder and not is_offer(holder) and -1 or 0
    end
  end
end
for first = 1, #KEYS, 1000 do
  redis.call('MGET', unpack(KEYS, first, math.min(first + 999, #KEYS)))
end
if renewed == #KEYS then return renewed end
return answers
