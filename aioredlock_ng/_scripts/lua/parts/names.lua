-- The beginnings of the names of the keys that belong to a lock's key.
local QUEUE, READERS_QUEUE = 'aioredlock_ng:queue:', 'aioredlock_ng:readers:'
local SLOTS_QUEUE, OWNER = 'aioredlock_ng:slots:', 'aioredlock_ng:owner:'

-- The beginning of an offer, which is a value of a lock's key; see parts/queue.lua.
local OFFER = 'aioredlock_ng:offer:'

-- The largest ticket, and the longest life of an offer: an hour, in milliseconds. Damaged data may
-- contain larger numbers, and the library could not read answers with such numbers.
local LARGEST_TICKET, LONGEST_GRACE = 9007199254740992, 3600000

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
