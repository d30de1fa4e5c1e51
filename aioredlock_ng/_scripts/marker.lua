-- Reads a node's marker, which names the server process whose memory it vouches for, and may replace it.
-- KEYS[1]  the marker
-- ARGV[1]  'read', or what to become: 'trusted', 'waiting', 'founding'
-- ARGV[2]  the marker as the caller read it, '' for none
-- ARGV[3]  when it read it: this node's milliseconds
-- ARGV[4]  'run_id:guard' as in acquire_guarded.lua
-- ARGV[5]  nonce of a founding marker
-- Returns  {marker now or '', this node's milliseconds, ARGV[4]}.
-- Marker   'run_id:guard' trusted; 'run_id:guard:ready' waiting until ready; 'run_id:guard:ready:nonce' founding.
-- One that waits is trusted only once it is ready by this node's time.
-- Replaced only if it is still what the caller read, no more than a second ago: a caller that was paused decides nothing.
-- The guard time runs a second longer than asked for. The last GET is for tracking, which one's own SET ends.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local marker = redis.call('GET', KEYS[1]) or ''
if ARGV[1] == 'read' or marker ~= ARGV[2] or math.abs(now - ARGV[3]) > 1000 then
  return {marker, now, ARGV[4]}
end
local ready = string.match(marker, '^%w+:%d+:(%d+)$')
if ARGV[1] == 'trusted' and ready and tonumber(ready) > now then return {marker, now, ARGV[4]} end
local new = ARGV[4]
if ARGV[1] ~= 'trusted' then
  new = new .. ':' .. string.format('%.0f', now + tonumber(string.match(new, ':(%d+)$')) + 1000)
  if ARGV[1] == 'founding' then new = new .. ':' .. ARGV[5] end
end
redis.call('SET', KEYS[1], new)
redis.call('GET', KEYS[1])
return {new, now, ARGV[4]}
