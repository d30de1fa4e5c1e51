-- Stores `fence` under each of `slots`; see parts/fence.lua. Raises `highest` to the highest
-- counter that is not below the fence. An error of the server ends the script. The caller declares
-- these three local variables, and `counters`.
for _, slot in ipairs(slots) do
  local counter = nil
  -- part: fence
  if type(counter) == 'string' then
    highest = math.max(highest, tonumber(counter))
  elseif counter then
    return counter
  end
end
