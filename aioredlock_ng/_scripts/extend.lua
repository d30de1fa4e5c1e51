-- Renews the keys of a batch of leases that still hold their tokens. A missing key is not set again.
-- KEYS       the keys of all leases in the batch
-- ARGV[1]    ttl in milliseconds, one for all
-- ARGV[i+1]  token that KEYS[i] must hold
-- Returns    #KEYS when every key was renewed, else an array per key: 1 renewed, 0 missing, -1 another's.
-- The last GET is for tracking, which one's own PEXPIRE ends.
-- pcall: a key that somebody overwrote with another type must not fail the rest of the batch.
local ttl, renewed, answers = ARGV[1], 0, {}
for i, key in ipairs(KEYS) do
  local holder = redis.pcall('GET', key)
  if holder == ARGV[i + 1] then
    redis.call('PEXPIRE', key, ttl)
    redis.call('GET', key)
    renewed = renewed + 1
    answers[i] = 1
  else
    answers[i] = holder and -1 or 0
  end
end
if renewed == #KEYS then return renewed end
return answers
