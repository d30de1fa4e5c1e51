-- Reads a node's marker, and may replace it. The marker names the server process whose memory holds
-- the locks.
-- KEYS[1]  the marker
-- KEYS[2]  the fence counters; left out for 'read'. A node that becomes trusted stores its floor,
--          see parts/floor.lua.
-- ARGV[1]  'read' to replace nothing; else the new state: 'trusted', 'waiting' or 'founding'
-- ARGV[2]  the marker as the caller read it; '' for none
-- ARGV[3]  this node's time in milliseconds at which the caller read the marker
-- ARGV[4]  'run_id:guard' for the new marker, see acquire_guarded.lua
-- ARGV[5]  nonce of a founding marker
-- Returns  {marker now or '', this node's time in milliseconds, ARGV[4]}
-- Marker   'run_id:guard' means trusted. 'run_id:guard:ready' means waiting, until this node's
--          clock has reached the ready time. 'run_id:guard:ready:nonce' means founding.
-- The marker is replaced only if the caller read this same marker at most a second ago. Otherwise a
-- caller that was paused meanwhile would act on an outdated marker.
-- The ready time in a new marker is the present time plus the guard time and another second.
-- The last GET renews the tracking, which SET has ended.
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
if ARGV[1] == 'trusted' then
  -- part: floor
  store_floor(KEYS[2], time)
end
redis.call('GET', KEYS[1])
return {new, now, ARGV[4]}
