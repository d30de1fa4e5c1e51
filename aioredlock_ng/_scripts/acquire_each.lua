-- Takes a key for each of several attempts, as acquire.lua or acquire_guarded.lua would do one after the other.
-- KEYS     one per attempt; then, where those are guarded, the node's marker and the fence counters
-- ARGV[1]  how many of KEYS are the latter
-- ARGV[2]  'run_id:guard' as in acquire_guarded.lua; '' no guard
-- ARGV[i]  from 3 on, per attempt: token, ttl in milliseconds; where they are guarded also: proposed fence ('' no fencing), slot
-- Returns  the number of attempts when each is granted as asked; else an array of what the script for one returns; an empty
--          array where anything is out of the ordinary, which it then leaves nothing of: to be asked one by one.
local own, vouch = tonumber(ARGV[1]), ARGV[2]
local n, words = #KEYS - own, own > 0 and 4 or 2
local taken, answers, odd, granted = {}, {}, false, 0

for i = 1, n do
  local at = 3 + (i - 1) * words
  local done = redis.pcall('SET', KEYS[i], ARGV[at], 'NX', 'PX', ARGV[at + 1])
  if not done then
    -- Only GET finds out that a key is of another type.
    local holder = redis.pcall('GET', KEYS[i])
    odd = odd or type(holder) == 'table'
    if not odd then
      -- part: queue
      answers[i] = refusal(1, {KEYS[i]}, {holder})
    end
  elseif done.ok then
    taken[#taken + 1] = i
  else
    odd = true
  end
  if odd then break end
end
local marker = vouch ~= '' and redis.pcall('GET', KEYS[n + 1])
if vouch ~= '' and marker ~= vouch then
  -- part: marker
  local _, ready = read_marker(marker, vouch)
  odd = odd or ready ~= ''
end

for _, i in ipairs(taken) do
  local at = 3 + (i - 1) * words
  if odd then
    redis.call('DEL', KEYS[i])
  elseif own == 0 or ARGV[at + 2] == '' then
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

if odd then return {} end
if granted == n then return n end
return answers
