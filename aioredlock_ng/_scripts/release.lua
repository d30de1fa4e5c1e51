-- Deletes those keys of one attempt that still hold its token, and the labels of that attempt.
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
  elseif n < #KEYS then
    -- The key is gone, or another's by now, and so may be the label.
    local label = redis.pcall('GETEX', KEYS[n + i])
    if type(label) == 'string' and string.find(label, string.sub(ARGV[1], 1, 16) .. ' ', 1, true) == 1 then
      redis.call('DEL', KEYS[n + i])
    end
  end
end
return deleted
