-- The readers of a read-write lock. While readers have the lock, its key is a sorted set in place
-- of a writer's token.
-- Entry    '<token>:<manager>'. A writer's token has this form, too, and becomes the entry at a
--          downgrade. The score is the expiry in milliseconds, by the clock of this node.
-- Offer    'aioredlock_ng:offer:<member>', an entry that is reserved for a waiting reader.
-- The key expires with its latest entry. Waiting readers have a queue of their own, because all of
-- them enter together after a writer. A waiting writer keeps new readers out.
-- part: offer_format
-- part: value

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns true if a key held by readers has this entry, and the entry has not expired.
local function has_entry(key, entry, now)
  local expiry = redis.call('ZSCORE', key, entry)
  return expiry and tonumber(expiry) >= now
end

-- Returns the entries that have not expired.
local function live_entries(key)
  local entries, live = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), {}
  local now = now_ms()
  for i = 1, #entries, 2 do
    if tonumber(entries[i + 1]) >= now then live[#live + 1] = entries[i] end
  end
  return live
end

-- Deletes the expired entries. Returns the latest entry before that, and its expiry. Without
-- permission for ZREVRANGE, `value_of` takes other data for readers. This data must not be pruned,
-- so ZREVRANGE comes first. The call fails without the permission.
local function prune(key)
  local last = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('(%.0f', now_ms()))
  return last[1], last[2]
end

-- Deletes the expired entries, and lets the key expire with its latest entry. Returns false if no
-- entry is left. If a call fails, for example because of a missing permission, the set may have no
-- expiry. A set without expiry would keep the lock for ever, so it is deleted. The error is raised
-- again.
local function settle(key)
  local done, expires = pcall(function()
    local _, expiry = prune(key)
    return expiry and redis.call('PEXPIREAT', key, expiry) == 1
  end)
  if done then return expires end
  if redis.call('PTTL', key) == -1 then redis.call('DEL', key) end
  error(expires, 0)
end

-- Adds an entry, or postpones its expiry. Several leases of a process may share an entry, so the
-- expiry never becomes earlier. A new entry that cannot expire is removed again. An entry that
-- existed before stays, because a lease relies on it.
local function keep_entry(key, entry, expiry)
  local added = redis.call('ZADD', key, 'GT', string.format('%.0f', expiry), entry)
  local done, problem = pcall(settle, key)
  if not done then
    if added == 1 then redis.pcall('ZREM', key, entry) end
    error(problem, 0)
  end
end
