-- Deletes those keys of one attempt that still hold its token.
-- KEYS     the lock's keys
-- ARGV[1]  token
-- Returns  how many keys were deleted.
local deleted = 0
for _, key in ipairs(KEYS) do
  if redis.pcall('GET', key) == ARGV[1] then
    deleted = deleted + redis.call('DEL', key)
  end
end
return deleted
