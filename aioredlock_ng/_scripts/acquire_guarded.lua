-- Takes all keys for one attempt, or none of them, where the node's memory is vouched for; and notes the attempt's fence.
-- KEYS     the lock's keys, one per resource; then the node's marker; then the fence counters
-- ARGV[1]  token, fresh for every attempt
-- ARGV[2]  ttl in milliseconds
-- ARGV[3]  'run_id:guard': the server process as this connection knows it, the guard time in milliseconds; '' no guard
-- ARGV[4]  proposed fence; '' no fencing
-- ARGV[i]  from 5 on: the slots of the lock's keys among the counters, each once; then, of one key, where processes compete: the
--          key of the precedence; who asks; the milliseconds for which it wants to go first at the next release, '0' not at all;
--          how often it was outrun
-- Returns  1: granted, and the fence is above every counter. {1, counter}: granted, the fence is not above this counter.
--          {0, remaining, i...}: another holds at least one; remaining milliseconds of the longest, -1 endless; of several
--          keys, which ones, counted from 1.
--          {-1, left}: quarantined; milliseconds left, -1 where the marker is missing, another's, too short, or above a day
--          and a second (86401000), which is damage.
-- The marker (see marker.lua) is 'run_id:guard' where trusted. A connection that may not know the run_id says zeros, and takes
-- the marker's.
-- Keys are read as in acquire.lua. Tracking costs more than reading: the rest is read by what counts as a write (GETEX, ZADD
-- INCR 0).
-- SET comes first: after another write a full server would let it pass. Who is refused later is left nothing.
-- The precedence is 'who:milliseconds:times', of who was outrun most often. Once another has found the lock free, a ':' follows, and
-- it lasts for those milliseconds from then on. Who is sent away by it is not tracked: others who come and go would be told.
local n = #KEYS - 2
local token, ttl, vouch, fence = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if n > 1 then
  local seen, longest, held = {}, false, {}
  for i, holder in ipairs(redis.call('MGET', unpack(KEYS, 1, n))) do
    if holder then table.insert(held, i) end
    if holder and not seen[holder] then
      seen[holder] = true
      local left = redis.call('PTTL', KEYS[i])
      if left < 0 or longest == -1 then longest = -1 else longest = math.max(left, longest or 0) end
    end
  end
  if longest then return {0, longest, unpack(held)} end
end
for i = 1, n do
  if not redis.call('SET', KEYS[i], token, 'NX', 'PX', ttl) then
    if i > 1 then redis.call('DEL', unpack(KEYS, 1, i - 1)) end
    redis.call('GET', KEYS[i])
    local left = redis.call('PTTL', KEYS[i])
    if n == 1 and ARGV[6] and ARGV[8] ~= '0' then
      local said = redis.pcall('GETEX', ARGV[6])
      local who, most = string.match(type(said) == 'string' and said or '', '^(%w+):%d+:(%d+):?$')
      if not who or who == ARGV[7] or tonumber(most) < tonumber(ARGV[9]) then
        redis.pcall('SET', ARGV[6], table.concat({ARGV[7], ARGV[8], ARGV[9]}, ':'), 'PX', math.max(left, 0) + ARGV[8])
      end
    end
    return {0, left}
  end
end
if n == 1 and ARGV[6] then
  local said = redis.pcall('GETEX', ARGV[6])
  local who, first, counted = string.match(type(said) == 'string' and said or '', '^(%w+):(%d+):%d+(:?)$')
  if who == ARGV[7] then
    redis.call('DEL', ARGV[6])
  elseif who then
    redis.call('DEL', KEYS[1])
    if counted == '' then redis.call('SET', ARGV[6], said .. ':', 'PX', first) end
    return {0, tonumber(first)}
  end
end

local refused
local marker = vouch ~= '' and redis.pcall('GETEX', KEYS[n + 1])
if type(marker) == 'table' then
  refused = marker
elseif vouch ~= '' and marker ~= vouch then
  local id, guard, ready = string.match(marker or '', '^(%w+):(%d+):?(%d*)')
  local own, wanted = string.match(vouch, '^(%w+):(%d+)$')
  if not id or (id ~= own and string.find(own, '[^0]')) or tonumber(guard) < tonumber(wanted)
    or tonumber(guard) > 86401000 then
    refused = {-1, -1}
  elseif ready ~= '' then
    local now = redis.pcall('TIME')
    local left = now.err and 0 or tonumber(ready) - (now[1] * 1000 + math.floor(now[2] / 1000))
    if now.err then
      refused = now
    elseif left > 0 then
      refused = {-1, left}
    else
      redis.call('SET', KEYS[n + 1], id .. ':' .. guard)
    end
  end
end

local highest = 0
if fence ~= '' and not refused then
  for i = 5, n == 1 and 5 or #ARGV do
    local stored = redis.pcall('ZADD', KEYS[n + 2], 'GT', 'CH', fence, ARGV[i])
    if stored == 0 then
      highest = math.max(highest, tonumber(redis.call('ZADD', KEYS[n + 2], 'INCR', 0, ARGV[i])))
    elseif stored ~= 1 then
      refused = stored
      break
    end
  end
end

if refused then
  redis.call('DEL', unpack(KEYS, 1, n))
  return refused
end
if highest > 0 then return {1, highest} end
return 1
