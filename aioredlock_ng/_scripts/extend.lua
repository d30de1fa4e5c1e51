-- Renews the keys of a batch of leases that still hold their tokens. A missing key is not set again.
-- KEYS       the keys of all leases in the batch
-- ARGV[1]    ttl in milliseconds, one for all
-- ARGV[i+1]  token that KEYS[i] must hold
-- Returns    #KEYS when every key was renewed, else an array per key: 1 renewed, 0 missing, -1 another's.
-- pcall: a key that somebody overwrote with another type must not fail the rest of the batch.
-- MGET at the end is for tracking, which one's own PEXPIRE ends. In Redis 6.2 and 7.0 each read in a script tracks all its
-- KEYS: a GET per key would cost the square of the batch.
local ttl, renewed, answers = ARGV[1], 0, {}
for i, key in ipairs(KEYS) do
  local holder = redis.pcall('GETEX', key)
  if holder == ARGV[i + 1] then
    redis.call('PEXPIRE', key, ttl)
    renewed = renewed + 1
    answers[i] = 1
  elseif type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
    return holder
  else
    answers[i] = holder and -1 or 0
  end
end
for first = 1, #KEYS, 1000 do redis.call('MGET', unpack(KEYS, first, math.min(first + 999, #KEYS))) end
if renewed == #KEYS then return renewed end
return answers
