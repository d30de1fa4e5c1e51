-- The beginnings of the names of the keys that belong to a lock's key.
local QUEUE, READERS_QUEUE = 'aioredlock_ng:queue:', 'aioredlock_ng:readers:'
local SLOTS_QUEUE, OWNER = 'aioredlock_ng:slots:', 'aioredlock_ng:owner:'

-- The beginning of an offer, which is a value of a lock's key; see parts/queue.lua.
local OFFER = 'aioredlock_ng:offer:'

-- The beginning of the channel on which a manager receives messages.
local CHANNEL = 'aioredlock_ng:'

-- Returns the queue that a slot shares with the other slots of its semaphore, and the number of the
-- slot. Returns nil for any other key. Few keys have a '#', and the plain `find` is faster than the
-- pattern.
local function slots_of(key)
  if not string.find(key, '#', 1, true) then return nil end
  local name, number = string.match(key, '^(.*)#([1-9]%d*)$')
  if name then return SLOTS_QUEUE .. name, tonumber(number) end
end
