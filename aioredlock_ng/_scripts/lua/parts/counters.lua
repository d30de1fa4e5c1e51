-- Returns true if a fence counter is damaged: no fence is above 8e15 or below 0. A damaged counter
-- must not be stored again, and must not raise other counters.
local function is_damaged(counter) return counter < 0 or counter > 8e15 end
