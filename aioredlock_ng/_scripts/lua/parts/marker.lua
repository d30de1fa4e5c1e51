-- Returns two parts of a marker: 'run_id:guard', and the ready time. The ready time of a trusted
-- marker is ''. Returns nil if the marker does not match `expected`. There are four cases:
-- * The key is missing, or its value is not a marker.
-- * The marker names another process. Zeros in place of the expected run_id match every process.
-- * The guard time in the marker is shorter than the expected one.
-- * The guard time in the marker is above a day plus a second, so it must be damaged.
local function read_marker(marker, expected)
  if type(marker) ~= 'string' then return nil end
  local id, guard, rest = string.match(marker, '^(%w+):(%d+)(.*)$')
  local ready = rest == '' and '' or string.match(rest or '-', '^:(%d+)$')
  ready = ready or string.match(rest or '-', '^:(%d+):[^:]*$')
  local own_id, wanted = string.match(expected, '^(%w+):(%d+)$')
  if not ready or #ready > 16 or (id ~= own_id and string.find(own_id, '[^0]')) then return nil end
  if tonumber(guard) < tonumber(wanted) or tonumber(guard) > 86401000 then return nil end
  return id .. ':' .. guard, ready
end

-- Returns true if a marker says that the node is trusted.
local function is_trusted(marker, expected)
  local _, ready = read_marker(marker, expected)
  return ready == ''
end
