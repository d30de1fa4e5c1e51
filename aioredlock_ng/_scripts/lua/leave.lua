-- Removes a member from the queue of each key. An offer to this member goes to the next member.
-- KEYS     the keys
-- ARGV[1]  member, see parts/queue.lua
-- Returns  1; or the server's error if the server refuses to remove the member from a queue.
-- The slots of a semaphore share one queue, so the member leaves that queue once.
-- part: queue
-- part: entries
local member = ARGV[1]
local problem
local values = limit_of(member) and slots_of(KEYS[1]) and redis.call('MGET', unpack(KEYS)) or {}
for i, key in ipairs(KEYS) do
  if i == 1 or values[i] == nil or (values[i] and is_offer_to(values[i], member)) then
    leave(key, member)
    -- `leave` ignores errors. Without this second ZREM, the client would not learn that the server
    -- refuses writes (MISCONF), and would not send the command again.
    local queue = queue_for(member, key)
    local removed = ask('ZRANK', queue, member) and redis.pcall('ZREM', queue, member)
    if type(removed) == 'table' then problem = removed end
  end
end
return problem or 1
