-- Deletes each key that still holds the token of its attempt, as release.lua would do one after the other.
-- KEYS     one per attempt
-- ARGV[i]  token of KEYS[i]
-- Returns  the number of keys when each was deleted; else an array per key: 1 deleted, 0 not ours. It ends before a key that
--          the server refuses to tell or to delete: that one and those behind it are to be asked one by one.
-- GETEX and not GET, and another type is not ours: see release.lua.
local deleted, answers = 0, {}
for i, key in ipairs(KEYS) do
  local holder, gone = redis.pcall('GETEX', key), 0
  if holder == ARGV[i] then
    gone = redis.pcall('DEL', key)
  elseif type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
    return answers
  end
  if type(gone) == 'table' then return answers end
  answers[i] = gone
  deleted = deleted + gone
end
if deleted == #KEYS then return deleted end
return answers
