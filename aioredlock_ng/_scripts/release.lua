-- Deletes those keys of one attempt that still hold its token, with their labels.
-- KEYS     the lock's keys; then, where it has labels, the key of each one's label
-- ARGV[1]  token
-- ARGV[2]  where it has labels: how many keys the lock has
-- Returns  how many of the lock's keys were deleted.
-- GETEX, unlike GET, does not leave a key tracked, which costs more than reading it.
-- pcall: a key that somebody overwrote with another type is not ours. A server that refuses to write says so.
local deleted, n = 0, tonumber(ARGV[2] or #KEYS)
for i = 1, n do
  local holder = redis.pcall('GETEX', KEYS[i])
  if holder == ARGV[1] then
    deleted = deleted + redis.call('DEL', KEYS[i])
    if n < #KEYS then redis.call('DEL', KEYS[n + i]) end
  elseif type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
    return holder
  end
end
return deleted
