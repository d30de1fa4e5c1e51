-- Tells whether leases still hold their keys, and leaves those keys tracked on this connection. Writes nothing.
-- KEYS     the keys of all leases in the batch
-- ARGV[i]  token that KEYS[i] must hold
-- Returns  #KEYS when every key holds its token, else an array per key: 1 ours, 0 missing or of another type, -1 another's.
-- MGET and not GET: see extend.lua.
local ours, answers = 0, {}
for first = 1, #KEYS, 1000 do
  local holders = redis.call('MGET', unpack(KEYS, first, math.min(first + 999, #KEYS)))
  for i, holder in ipairs(holders) do
    local at = first + i - 1
    if holder == ARGV[at] then
      ours = ours + 1
      answers[at] = 1
    else
      answers[at] = holder and -1 or 0
    end
  end
end
if ours == #KEYS then return ours end
return answers
