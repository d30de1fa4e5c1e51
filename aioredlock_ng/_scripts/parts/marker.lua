-- Returns what a marker vouches for, and its ready time: '' where it is trusted already. Returns nil
-- where a client that asks for 'run_id:guard', which is `vouch`, may not rely on it.
local function read_marker(marker, vouch)
  if type(marker) ~= 'string' then return nil end
  local id, guard, ready = string.match(marker, '^(%w+):(%d+):?(%d*)')
  local own, wanted = string.match(vouch, '^(%w+):(%d+)$')
  if not id or (id ~= own and string.find(own, '[^0]')) then return nil end
  if tonumber(guard) < tonumber(wanted) or tonumber(guard) > 86401000 then return nil end
  return id .. ':' .. guard, ready
end
