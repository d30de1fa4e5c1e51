-- Gives a node back what it lacks of a lease that is held elsewhere: missing keys, and the fence in its counters.
-- KEYS     the lock's keys; then the node's marker; then the fence counters
-- ARGV[1]  token
-- ARGV[2]  ttl in milliseconds, for keys that are set again
-- ARGV[3]  'run_id:guard' as in acquire_guarded.lua
-- ARGV[4]  the lease's fence
-- ARGV[i]  from 5 on: the slots of the lock's keys among the counters, each once
-- Returns  1: the node has it all now. 0: a key is another's, or a counter is above the fence. -1: not vouched for.
-- Keys are set again only where the marker says trusted: past the guard, that would give two holders.
-- Reads the keys last: one's own SET ends their tracking. MGET and not GET: see extend.lua.
local n = #KEYS - 2
local missing = {}
for i, holder in ipairs(redis.call('MGET', unpack(KEYS, 1, n))) do
  if not holder then missing[#missing + 1] = KEYS[i] elseif holder ~= ARGV[1] then return 0 end
end
if #missing > 0 then
  -- part: marker
  local _, ready = read_marker(redis.call('GET', KEYS[n + 1]), ARGV[3])
  if ready ~= '' then return -1 end
end
local counters, fence, highest = KEYS[n + 2], ARGV[4], 0
for i = 5, #ARGV do
  local slot, counter = ARGV[i], nil
  -- part: fence
  if type(counter) == 'string' then
    highest = math.max(highest, tonumber(counter))
  elseif counter then
    return counter
  end
end
if highest > tonumber(fence) and #missing > 0 then return 0 end
for _, key in ipairs(missing) do
  if not redis.call('SET', key, ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
end
redis.call('MGET', unpack(KEYS, 1, n))
return 1
