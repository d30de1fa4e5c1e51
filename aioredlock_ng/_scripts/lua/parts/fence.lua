-- Stores `fence` under `slot` in `counters` if the fence is above the counter there, and sets
-- `counter` to nil. Otherwise sets `counter` to the stored counter, which is a string, or to an
-- error of the server. The caller declares these four local variables. The part is not a function,
-- because creating a function would slow each acquire. The call is a pcall, because an error must
-- not end a script that has set a key.
counter = redis.pcall('ZADD', counters, 'GT', 'CH', fence, slot)
if counter == 0 then
  counter = redis.pcall('ZSCORE', counters, slot)
elseif counter == 1 then
  counter = nil
end
