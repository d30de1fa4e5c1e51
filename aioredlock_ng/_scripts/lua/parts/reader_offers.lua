-- Offers of a key to all waiting readers. parts/queue.lua explains offers. Scripts include it
-- before this part.
-- part: members
-- part: first
-- part: readers

-- See `offer_readers` in parts/offers.lua.
local function offer_to_readers(queue, members, key)
  local offered = false
  -- A user of locks may have no right to TIME, and the key may be of another type by now. Without
  -- pcall, the error would end a release that has freed nothing yet.
  local known, now, value = pcall(function() return now_ms(), value_of(key) end)
  if not known or not ask('DEL', queue) then return false end
  for _, member in ipairs(members) do
    if notify(member, 0, key) then
      if not offered and value ~= READERS then ask('DEL', key) end
      local expiry = string.format('%.0f', now + grace_of(member))
      offered = ask('ZADD', key, expiry, offer_to(member)) and true or offered
    end
  end
  if not offered then return false end
  -- Without some rights, `settle` fails, and the set may have no expiry. A set without expiry would
  -- keep the lock for ever, so the offers are removed.
  if not pcall(settle, key) then
    for _, member in ipairs(members) do ask('ZREM', key, offer_to(member)) end
    return false
  end
  notify_first(QUEUE .. key, key, 0)
  return true
end
