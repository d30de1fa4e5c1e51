-- Tells those who have asked await_turn.lua that a process no longer hands the lock on within itself. It leaves nothing.
-- KEYS[1]  the key of the lock's turn
-- Returns  1
-- DEL comes first: after a write a full server lets SET pass.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], '', 'PX', 1)
redis.call('DEL', KEYS[1])
return 1
