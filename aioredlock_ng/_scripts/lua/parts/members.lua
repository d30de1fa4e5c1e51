-- The members of queues. parts/queue.lua explains their names. Scripts include it before this part.

-- Returns the keys of the slots 1 to `limit` of the semaphore to which a slot belongs; no keys for
-- limit 0.
local function slots_up_to(limit, key)
  local keys, name = {}, limit > 0 and string.match(key, '^.*#') or key
  for slot = 1, limit do keys[slot] = name .. slot end
  return keys
end

-- Returns the limit of a member that waits for a semaphore, 1000 at most; nil for any other member.
local function limit_of(member)
  local limit = tonumber(string.match(member, ':(%d+)#%d+$') or 0)
  if limit > 0 then return math.min(limit, 1000) end
end

local function is_reader(member) return string.find(member, ':r#%d+$') ~= nil end

-- Returns true if a member accepts this slot. Slot 0 means a lock, which every member accepts.
local function takes(member, slot) return (limit_of(member) or slot) >= slot end

-- Returns the first member of a queue that accepts this slot, and the member's place. The search
-- begins at place `at`. Returns nil if no member accepts the slot.
local function taker(queue, slot, at)
  while true do
    local member = (ask('ZRANGE', queue, at, at) or {})[1]
    if not member or takes(member, slot) then return member, at end
    at = at + 1
  end
end

-- Returns the queue in which a member waits for a key.
local function queue_for(member, key)
  if is_reader(member) then return READERS_QUEUE .. key end
  return limit_of(member) and slots_of(key) or QUEUE .. key
end
