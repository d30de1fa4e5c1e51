-- Restores a lease that other nodes still have: sets the missing keys, and stores the fence in the
-- counters.
-- KEYS     the lock's keys; then the node's marker; then the fence counters
-- ARGV[1]  token
-- ARGV[2]  ttl in milliseconds for keys that are set again
-- ARGV[3]  expected marker 'run_id:guard', see acquire_guarded.lua
-- ARGV[4]  the fence that a quorum stored for the lease's grant
-- ARGV[i]  from 5 on: the counter slots of the lock's keys, each slot once
-- Returns  1: every key holds the token, and no counter is below the fence.
--          0: a key holds another token, or a key is missing and a counter is above the fence.
--          -1: a key is missing, and the node is not trusted.
-- A key that is reserved for waiters counts as missing, because the waiters hold nothing yet. If
-- the offers stayed, waiters could keep the key from its holder by asking again and again.
-- A missing key is set again only if the marker is trusted. A node in quarantine may have forgotten
-- a lock of another holder, and setting the key would give the lock two holders.
-- The last MGET renews the tracking, which SET has ended.
-- The reason for MGET instead of GET is given in extend.lua.
local n = #KEYS - 2
local missing, offers = {}, {}
-- part: offer_format
-- part: value

-- Returns the state of a key that is no string: 'missing', 'reserved' for readers only, or 'held'.
local function state_of(key)
  local known, value = pcall(value_of, key)
  if not known then return 'held' end
  if not value then return 'missing' end
  local entries, time = redis.pcall('ZRANGE', key, 0, -1, 'WITHSCORES'), redis.pcall('TIME')
  if entries.err or time.err then return 'held' end
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  for i = 1, #entries, 2 do
    local is_live = tonumber(entries[i + 1]) >= now
    if is_live and not is_offer(entries[i]) then return 'held' end
  end
  return 'reserved'
end

-- part: hidden
for i, holder in ipairs(values) do
  local state = 'held'
  if not holder then
    state = hidden and state_of(KEYS[i]) or 'missing'
  elseif is_offer(holder) then
    state = 'reserved'
  end
  if state == 'missing' then
    missing[#missing + 1] = KEYS[i]
  elseif state == 'reserved' then
    offers[#offers + 1] = KEYS[i]
  elseif holder ~= ARGV[1] then
    return 0
  end
end
if #missing + #offers > 0 then
  -- part: marker
  if not is_trusted(redis.call('GET', KEYS[n + 1]), ARGV[3]) then return -1 end
end
local counters, fence, slots, highest = KEYS[n + 2], ARGV[4], {unpack(ARGV, 5)}, 0
-- part: fences
if highest > tonumber(fence) and #missing + #offers > 0 then return 0 end
for _, key in ipairs(missing) do
  if not redis.call('SET', key, ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
end
for _, key in ipairs(offers) do redis.call('SET', key, ARGV[1], 'PX', ARGV[2]) end
redis.call('MGET', unpack(KEYS, 1, n))
return 1
