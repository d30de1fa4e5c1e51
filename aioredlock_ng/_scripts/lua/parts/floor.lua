-- Stores the floor of a node that becomes trusted: the present time in microseconds, rounded up to
-- a multiple of 16. The floor is stored among the fence counters. The node may have lost counters,
-- so it gives readers no fence below the floor. `time` is the answer to TIME. The call is a pcall,
-- because a user without fencing may have no right to the counters.
local function store_floor(counters, time)
  local now = time[1] * 1000000 + time[2]
  redis.pcall('ZADD', counters, 'GT', string.format('%.0f', now + -now % 16), 'floor')
end
