-- Tells whether leases still hold their keys, and leaves those keys tracked on this connection. Writes nothing.
-- KEYS     the keys of all leases in the batch
-- ARGV[i]  token that KEYS[i] must hold
-- Returns  #KEYS when every key holds its token, else an array per key: 1 ours, 0 missing, -1 another's.
local ours, answers = 0, {}
for i, key in ipairs(KEYS) do
  local holder = redis.pcall('GET', key)
  if holder == ARGV[i] then
    ours = ours + 1
    answers[i] = 1
  else
    answers[i] = holder and -1 or 0
  end
end
if ours == #KEYS then return ours end
return answers
