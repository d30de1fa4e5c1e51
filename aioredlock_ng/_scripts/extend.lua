-- Renews the keys of a batch of leases that still hold their tokens. A missing key is not set again.
-- KEYS       the keys of all leases in the batch
-- ARGV[1]    ttl in milliseconds, one for all
-- ARGV[i+1]  token that KEYS[i] must hold
-- Returns    #KEYS when every key was renewed, else an array per key: 1 renewed, 0 missing or of another type, -1 another's.
-- MGET, unlike GET, takes a key of another type for a missing one: it does not fail the rest of the batch.
-- The last MGET is for tracking, which one's own PEXPIRE ends. In Redis 6.2 and 7.0 each read of a tracked call tracks all its
-- KEYS: a GET per key would cost the square of the batch.
local ttl, renewed, answers = ARGV[1], 0, {}
for first = 1, #KEYS, 1000 do
  for i, holder in ipairs(redis.call('MGET', unpack(KEYS, first, math.min(first + 999, #KEYS)))) do
    local at = first + i - 1
    if holder == ARGV[at + 1] then
      -- pcall: the server's words reach the log as they are.
      local done = redis.pcall('PEXPIRE', KEYS[at], ttl)
      if type(done) == 'table' then return done end
      renewed = renewed + 1
      answers[at] = 1
    else
      answers[at] = holder and -1 or 0
    end
  end
end
for first = 1, #KEYS, 1000 do redis.call('MGET', unpack(KEYS, first, math.min(first + 999, #KEYS))) end
if renewed == #KEYS then return renewed end
return answers
