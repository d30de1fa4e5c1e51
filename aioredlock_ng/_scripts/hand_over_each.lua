-- Hands keys from one attempt to the next, as release.lua and then acquire.lua or acquire_guarded.lua would do for each of them.
-- KEYS     one per hand-over; then, where those are guarded, the node's marker and the fence counters
-- ARGV[1]  how many of KEYS are the latter
-- ARGV[2]  'run_id:guard' as in acquire_guarded.lua; '' no guard
-- ARGV[i]  from 3 on, per hand-over: token that is released; then, as in acquire_each.lua: token, ttl in milliseconds, and where
--          they are guarded also: proposed fence ('' no fencing), slot
-- Returns  twice the number of hand-overs when each key was released and is granted as asked; else an array of what the two
--          scripts return, by turns. It ends before the first call that is out of the ordinary, the release of a key that is
--          not held any more among them: that call and those behind it are to be asked one by one.
-- GETEX and not GET: see release.lua. SET takes no more memory than the server had: a full one hands over too.
local own, vouch = tonumber(ARGV[1]), ARGV[2]
local n, words = #KEYS - own, own > 0 and 5 or 3
local answers, granted = {}, 0

local marker = vouch ~= '' and redis.pcall('GETEX', KEYS[n + 1])
if vouch ~= '' and marker ~= vouch then
  if type(marker) ~= 'string' then return answers end
  local id, guard = string.match(marker, '^(%w+):(%d+)$')
  local process, wanted = string.match(vouch, '^(%w+):(%d+)$')
  if id ~= process or tonumber(guard) < tonumber(wanted) then return answers end
end

for i = 1, n do
  local at = 3 + (i - 1) * words
  if redis.pcall('GETEX', KEYS[i]) ~= ARGV[at] then return answers end
  if not redis.pcall('SET', KEYS[i], ARGV[at + 1], 'PX', ARGV[at + 2]).ok then return answers end
  answers[2 * i - 1] = 1
  local stored = 1
  if own > 0 and ARGV[at + 3] ~= '' then stored = redis.pcall('ZADD', KEYS[n + 2], 'GT', 'CH', ARGV[at + 3], ARGV[at + 4]) end
  if stored == 1 then
    granted, answers[2 * i] = granted + 1, 1
  elseif stored == 0 then
    answers[2 * i] = {1, tonumber(redis.call('ZADD', KEYS[n + 2], 'INCR', 0, ARGV[at + 4]))}
  else
    redis.call('DEL', KEYS[i])
    return answers
  end
end

if granted == n then return 2 * n end
return answers
