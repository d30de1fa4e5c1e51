-- Ends a lease before its `min_hold` is over. Keys that still hold the lease's token stay taken.
-- KEYS     the lock's keys
-- ARGV[1]  token
-- ARGV[2]  milliseconds for which the keys stay taken from now on
-- ARGV[3]  label of the lease; '' for none
-- Returns  how many keys held the token. Each of these keys now has the value
--          'aioredlock_ng:over:<token>', which is not a token. These keys are offered to no waiter.
--          The first waiters are notified, because the keys may expire earlier than these waiters
--          expect. A missing key is offered, as by release.lua.
-- A call that arrives late must not prolong the life of a key, so a shorter remaining ttl is kept.
-- The reason for MGET instead of GET is given in extend.lua.
-- part: queue
-- part: offers
-- part: members
-- part: first
-- part: second
local kept = 0
for i, holder in ipairs(redis.call('MGET', unpack(KEYS))) do
  if holder == ARGV[1] then
    local left, remaining = tonumber(ARGV[2]), redis.call('PTTL', KEYS[i])
    if remaining >= 0 and remaining < left then left = math.max(remaining, 1) end
    -- A full server refuses only the first write of a script, and never a PEXPIRE. The user may
    -- have no right to PEXPIRE, so the call is a pcall.
    redis.pcall('PEXPIRE', KEYS[i], left)
    redis.call('SET', KEYS[i], 'aioredlock_ng:over:' .. holder, 'PX', left)
    kept = kept + 1
    -- A label that cannot be written must not end the script, so the call is a pcall.
    if ARGV[3] ~= '' then
      redis.pcall('SET', OWNER .. KEYS[i], ARGV[3], 'PX', left)
    end
    notify_first(QUEUE .. KEYS[i], KEYS[i], 0)
    notify_second(QUEUE .. KEYS[i], KEYS[i])
    notify_first(READERS_QUEUE .. KEYS[i], KEYS[i], 0)
    local shared, slot = slots_of(KEYS[i])
    if shared then notify_first(shared, KEYS[i], slot) end
  elseif not holder and ask('PTTL', KEYS[i]) == -2 then
    offer(KEYS[i])
  end
end
return kept
