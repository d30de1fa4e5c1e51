-- Reads a lock's key, which readers may hold; see parts/readers.lua.

-- The value that `value_of` returns for a key held by readers. No client writes it.
local READERS = 'aioredlock_ng:readers'

-- Returns the value of a lock's key. Returns false if there is no key, and READERS if readers hold
-- the key. A key of another type raises the server's error.
local function value_of(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'table' then return value end
  -- part: has_readers
  return has_readers(key) and READERS or redis.call('GET', key)
end
