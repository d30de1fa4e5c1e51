-- Distinguishes the readers of a lock from other data; see parts/readers.lua.
-- part: offer_format

-- Returns true if a key is a sorted set that expires and has entries of readers. Any other set
-- belongs to another program. The members of such a set may look like entries, for example ids of
-- 32 hexadecimal digits. But the key of readers expires no later than its latest entry. Without
-- permission for ZREVRANGE, the script cannot tell the types apart. Every key that expires then
-- counts as held by readers.
local function has_readers(key)
  local latest, left = redis.pcall('ZREVRANGE', key, 0, 0, 'WITHSCORES'), redis.call('PTTL', key)
  if latest.err then
    if string.find(latest.err, 'WRONGTYPE', 1, true) then return false end
  else
    local entry = latest[1] or ''
    local is_lease = #entry >= 32 and string.find(entry, '^%x+:?%x*$')
    if not is_lease and not is_offer(entry) then return false end
    -- A user of locks may have no right to TIME, so the call is a pcall. The two clocks of a script
    -- differ by less than a second.
    local time = redis.pcall('TIME')
    if not time.err and tonumber(latest[2]) < time[1] * 1000 + left - 1000 then return false end
  end
  return left >= 0
end
