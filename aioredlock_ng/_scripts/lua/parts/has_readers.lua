-- Distinguishes the readers of a lock from other data; see parts/readers.lua.
-- part: offer_format

-- Returns true if a key is a sorted set that expires and has entries of readers. Any other set
-- belongs to another program. Without permission for ZREVRANGE, the script cannot tell the types
-- apart. Every key that expires then counts as held by readers.
local function has_readers(key)
  local latest = redis.pcall('ZREVRANGE', key, 0, 0)
  if latest.err then
    if string.find(latest.err, 'WRONGTYPE', 1, true) then return false end
  else
    local entry = latest[1] or ''
    local is_lease = #entry >= 32 and string.find(entry, '^%x+:?%x*$')
    if not is_lease and not is_offer(entry) then return false end
  end
  return redis.call('PTTL', key) >= 0
end
