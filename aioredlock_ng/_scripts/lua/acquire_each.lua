-- Acquires one key for each of several attempts. Each attempt gets the answer that acquire.lua or
-- acquire_guarded.lua would give if the attempts ran one after the other.
-- KEYS     one key per attempt. If the attempts are guarded, the node's marker and the fence
--          counters follow.
-- ARGV[1]  how many KEYS follow the keys of the attempts: 0 or 2
-- ARGV[2]  expected marker 'run_id:guard', see acquire_guarded.lua; '' without a guard
-- ARGV[i]  from 3 on, for each attempt: token, ttl in milliseconds. A guarded attempt also has the
--          proposed fence ('' without fencing) and the counter slot of its key.
-- Returns  the number of attempts if the answer to each is 1. Else an array with one answer per
--          attempt. After an error, or if the node is not trusted, the array is empty and no key
--          stays set. The caller then repeats the attempts one by one.
local shared, expected = tonumber(ARGV[1]), ARGV[2]
local n, width = #KEYS - shared, shared > 0 and 4 or 2
local taken, answers, failed, granted = {}, {}, false, 0

-- A node that is not trusted must not change a key; see acquire_guarded.lua.
local marker_key = KEYS[n + 1]
-- part: compare
if is_odd then
  -- part: marker
  if not is_trusted(marker, expected) then return {} end
end

for i = 1, n do
  local at = 3 + (i - 1) * width
  local done = redis.pcall('SET', KEYS[i], ARGV[at], 'NX', 'PX', ARGV[at + 1])
  if not done then
    -- part: queue
    -- part: value
    -- part: tickets
    -- SET NX also fails for a key of another type. `value_of` raises an error for such a key.
    local known, holder = pcall(value_of, KEYS[i])
    failed = failed or not known
    if not failed then answers[i] = refusal(1, {KEYS[i]}, {holder}) end
  elseif done.ok then
    taken[#taken + 1] = i
  else
    failed = true
  end
  if failed then break end
end

for _, i in ipairs(taken) do
  local at = 3 + (i - 1) * width
  if failed then
    redis.call('DEL', KEYS[i])
  elseif shared == 0 or ARGV[at + 2] == '' then
    granted, answers[i] = granted + 1, 1
  else
    local counters, fence, slot, counter = KEYS[n + 2], ARGV[at + 2], ARGV[at + 3], nil
    -- part: fence
    if not counter then
      granted, answers[i] = granted + 1, 1
    elseif type(counter) == 'string' then
      answers[i] = {1, tonumber(counter)}
    else
      for _, j in ipairs(taken) do redis.call('DEL', KEYS[j]) end
      return {}
    end
  end
end

if failed then return {} end
if granted == n then return n end
return answers
