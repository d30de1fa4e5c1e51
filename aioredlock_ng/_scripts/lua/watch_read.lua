-- Returns whether read leases still have their entries. Writes nothing but labels.
-- KEYS     the keys of all leases; then, with labels, the key of each label
-- ARGV[i]  entry of KEYS[i], or the token of a writer's lease that was downgraded. Then, with
--          labels, two words per key: the ttl of its label in milliseconds, and the label.
-- Returns  the number of the leases' keys if every key has its entry or token. Else an array with a
--          number per key: 1 present, 0 absent or of another type, -1 held by a writer.
-- part: readers
local n = #KEYS
local labelled = #ARGV > n
if labelled then n = n / 2 end
local ours, answers, now = 0, {}, now_ms()
for i = 1, n do
  local known, value = pcall(value_of, KEYS[i])
  answers[i] = known and value and value ~= READERS and not is_offer(value) and -1 or 0
  if known and value == ARGV[i] then
    answers[i] = 1
  elseif known and value == READERS then
    if has_entry(KEYS[i], ARGV[i], now) then answers[i] = 1 end
  end
  if answers[i] == 1 then
    ours = ours + 1
    -- A label that cannot be written does no harm to the lease, so the call is a pcall.
    if labelled then
      redis.pcall('SET', KEYS[n + i], ARGV[n + 2 * i], 'PX', ARGV[n + 2 * i - 1])
    end
  end
end
if ours == n then return ours end
return answers
