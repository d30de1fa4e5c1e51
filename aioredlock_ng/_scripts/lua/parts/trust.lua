-- part: marker
-- part: floor
-- Returns nil if a node is trusted, else the refusal {-1, left} or an error; see
-- acquire_guarded.lua. A node whose ready time has passed becomes trusted, and stores its floor.
local function distrusted(marker_key, counters, marker, expected)
  if type(marker) == 'table' then return marker end
  local trusted, ready = read_marker(marker, expected)
  if not trusted then return {-1, -1} end
  if ready == '' then return nil end
  local now = redis.pcall('TIME')
  if now.err then return now end
  local left = tonumber(ready) - (now[1] * 1000 + math.floor(now[2] / 1000))
  if left > 0 then return {-1, left} end
  redis.call('SET', marker_key, trusted)
  store_floor(counters, now)
end
