-- Reads the node's marker under `marker_key` into `marker`. Sets `is_odd` to true if the marker
-- differs from `expected`; see acquire_guarded.lua. The caller declares these two names. This part
-- is not a function, because creating a function would slow each acquire. Only an odd
-- marker needs the functions of parts/marker.lua.
local marker = expected ~= '' and redis.pcall('GET', marker_key)
local is_odd = expected ~= '' and marker ~= expected
