-- Returns two parts of a marker: 'run_id:guard', and the ready time, which is '' if the marker is
-- trusted now. Returns nil if the marker does not match the marker `expected`:
-- * The marker is missing, or is no marker.
-- * It names another process. Zeros in place of the expected run_id match every process.
-- * Its guard time is shorter than the expected one, or above a day plus a second. A guard time
--   of that length is damage.
local function read_marker(marker, expected)
  if type(marker) ~= 'string' then return nil end
  local id, guard, ready = string.match(marker, '^(%w+):(%d+):?(%d*)')
  local own_id, wanted = string.match(expected, '^(%w+):(%d+)$')
  if not id or (id ~= own_id and string.find(own_id, '[^0]')) then return nil end
  if tonumber(guard) < tonumber(wanted) or tonumber(guard) > 86401000 then return nil end
  return id .. ':' .. guard, ready
end
