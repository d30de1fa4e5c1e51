-- Deletes keys whoever holds them: an operator's last resort.
-- KEYS     the lock's keys
-- Returns  how many keys were deleted.
return redis.call('DEL', unpack(KEYS))
