-- Stores `fence` in the counter `slot` of `counters` if it is above it, and sets `counter` to nil.
-- Else sets `counter` to that counter, a string, or to the error of the server. The caller declares
-- all four. Not a function: an uncontended acquire would pay some 0.1 microseconds for one.
counter = redis.pcall('ZADD', counters, 'GT', 'CH', fence, slot)
if counter == 0 then
  counter = redis.pcall('ZSCORE', counters, slot)
elseif counter == 1 then
  counter = nil
end
