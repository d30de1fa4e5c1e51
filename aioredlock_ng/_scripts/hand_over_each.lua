-- Hands keys from one attempt to the next, as release.lua and then acquire.lua or acquire_guarded.lua would do for each of them.
-- KEYS     one per hand-over; then, where those are guarded, the node's marker and the fence counters
-- ARGV[1]  how many of KEYS are the latter
-- ARGV[2]  'run_id:guard' as in acquire_guarded.lua; '' no guard
-- ARGV[i]  from 3 on, per hand-over: token that is released; then, as in acquire_each.lua: token, ttl in milliseconds, and where
--          they are guarded also: proposed fence ('' no fencing), slot
-- Returns  twice the number of hand-overs when each key was released and is granted as asked; else an array of what the two
--          scripts return, by turns. It ends before the first call that meets an error, or at once where the node is not
--          vouched for: that call and those behind it are to be asked one by one.
-- A key that another process waits for is offered to that one; the acquire behind the release is
-- refused then. Unlike the scripts for one call it takes keys on a full server: in the place of what
-- it frees, or of what was there.
local own, vouch = tonumber(ARGV[1]), ARGV[2]
local n, words = #KEYS - own, own > 0 and 5 or 3
local answers, handed, queues, offered = {}, 0, {}, nil
for i = 1, n do queues[i] = 'aioredlock_ng:queue:' .. KEYS[i] end
if n > 0 and redis.pcall('EXISTS', unpack(queues)) ~= 0 then
  -- part: queue
  offered = offer
end

local marker = vouch ~= '' and redis.pcall('GET', KEYS[n + 1])
if vouch ~= '' and marker ~= vouch then
  -- part: marker
  local _, ready = read_marker(marker, vouch)
  if ready ~= '' then return answers end
end

for i = 1, n do
  local at = 3 + (i - 1) * words
  local key, holder = KEYS[i], redis.pcall('GET', KEYS[i])
  if type(holder) == 'table' then return answers end
  local ours, taken = holder == ARGV[at], nil
  if ours and not (offered and offered(key)) then
    taken = redis.pcall('SET', key, ARGV[at + 1], 'PX', ARGV[at + 2])
    if not taken.ok then
      -- A full server refuses the first write of a script only, unless that deletes.
      redis.pcall('DEL', key)
      taken = redis.pcall('SET', key, ARGV[at + 1], 'PX', ARGV[at + 2])
    end
    if not taken.ok then return answers end
  else
    taken = redis.pcall('SET', key, ARGV[at + 1], 'NX', 'PX', ARGV[at + 2])
  end
  answers[2 * i - 1] = ours and 1 or 0

  if not taken then
    -- part: queue
    answers[2 * i] = refusal(1, {key}, {redis.call('GET', key)})
  elseif not taken.ok then
    return answers
  else
    local counters, fence, slot, counter = KEYS[n + 2], ARGV[at + 3], ARGV[at + 4], nil
    if own > 0 and fence ~= '' then
      -- part: fence
    end
    if not counter then
      answers[2 * i] = 1
      if ours then handed = handed + 1 end
    elseif type(counter) == 'string' then
      answers[2 * i] = {1, tonumber(counter)}
    else
      redis.call('DEL', key)
      return answers
    end
  end
end

if handed == n then return 2 * n end
return answers
