-- Returns whether leases still hold their keys. In a tracked call, the server tracks the keys from
-- this read on. Writes nothing but labels.
-- KEYS     the keys of all leases; then, with labels, the key of each label
-- ARGV[i]  token that KEYS[i] must hold. Then, with labels, two words per key: the ttl of its
--          label in milliseconds, and the label.
-- Returns  the number of the leases' keys if every key holds its token. Else an array with a number
--          per key: 1 held by the token, 0 missing, reserved for a waiter, or of another type, -1
--          held by another token.
-- The reason for MGET instead of GET is given in extend.lua.
-- part: offer_format
local n = #KEYS
local labelled = #ARGV > n
if labelled then n = n / 2 end
local ours, answers = 0, {}
for first = 1, n, 1000 do
  local holders = redis.call('MGET', unpack(KEYS, first, math.min(first + 999, n)))
  for i, holder in ipairs(holders) do
    local at = first + i - 1
    if holder == ARGV[at] then
      ours = ours + 1
      answers[at] = 1
    else
      answers[at] = holder and not is_offer(holder) and -1 or 0
    end
  end
end
if labelled then
  for i = 1, n do
    -- A label that cannot be written does no harm to the lease, so the call is a pcall.
    if answers[i] == 1 then
      redis.pcall('SET', KEYS[n + i], ARGV[n + 2 * i], 'PX', ARGV[n + 2 * i - 1])
    end
  end
end
if ours == n then return ours end
return answers
