-- Reads the first `n` keys in KEYS into `values`. Sets `hidden` to true if a key without a value
-- may exist. MGET returns nothing for keys held by readers and for keys of other types, but EXISTS
-- counts these keys. The caller declares `n`. The part is not a function, because creating a
-- function would slow each acquire.
local values, seen = redis.call('MGET', unpack(KEYS, 1, n)), 0
for i = 1, n do seen = seen + (values[i] and 1 or 0) end
local hidden = seen < n and (n == 1 or redis.pcall('EXISTS', unpack(KEYS, 1, n)) ~= seen)
