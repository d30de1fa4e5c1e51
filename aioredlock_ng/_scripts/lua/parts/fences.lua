-- Stores `fence` under each slot of ARGV from `first` on; see parts/fence.lua. Sets `highest` to the
-- highest counter that is not below the fence, or leaves it. An error of the server ends the script.
-- The caller declares `counters`, `fence`, `first` and `highest`.
for i = first, #ARGV do
  local slot, counter = ARGV[i], nil
  -- part: fence
  if type(counter) == 'string' then
    highest = math.max(highest, tonumber(counter))
  elseif counter then
    return counter
  end
end
