-- Deletes those keys of one attempt that still hold its token.
-- KEYS     the lock's keys
-- ARGV[1]  token
-- Returns  how many keys were deleted.
-- GETEX, unlike GET, does not leave a key tracked, which costs more than reading it.
-- pcall: a key that somebody overwrote with another type is not ours. A server that refuses to write says so.
local deleted = 0
for _, key in ipairs(KEYS) do
  local holder = redis.pcall('GETEX', key)
  if holder == ARGV[1] then
    deleted = deleted + redis.call('DEL', key)
  elseif type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
    return holder
  end
end
return deleted
