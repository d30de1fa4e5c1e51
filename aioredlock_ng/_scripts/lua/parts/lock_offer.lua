-- Offers `key` to the first waiter in the key's own queue, and notifies the second waiter. Sets
-- `offered` to the ticket of the first waiter. Waiters whose processes are gone are removed. The
-- caller declares `key` and `offered`, and includes parts/names.lua. The part declares `queue`, the
-- name of the queue, and `is_line`, which is true if the queue had a second waiter. parts/queue.lua
-- explains offers. The part is not a function, because creating functions would slow each release
-- to a waiter.
local queue, is_line = QUEUE .. key, false
while true do
  local line = redis.pcall('ZRANGE', queue, 0, 1, 'WITHSCORES')
  local member, ticket, second = line[1], line[2], line[3]
  if not member then break end
  is_line = second ~= nil
  local manager, message = string.match(member, '^%x+'), '0 ' .. member .. ' ' .. key
  local heard
  -- part: message
  if type(redis.pcall('ZREM', queue, member)) == 'table' then break end
  if heard ~= 0 then
    local grace = tonumber(string.match(member, '[:#](%d+)$')) or 1
    grace = math.max(1, math.min(grace, LONGEST_GRACE))
    local done = redis.pcall('SET', key, OFFER .. ticket .. ':' .. member, 'PX', grace)
    if not done.ok then break end
    offered = tonumber(ticket)
    while second do
      manager, message = string.match(second, '^%x+'), grace .. ' ' .. second .. ' ' .. key
      -- part: message
      if heard ~= 0 then break end
      -- A waiter whose process is gone would hide the end of the offer from the next waiter.
      if type(redis.pcall('ZREM', queue, second)) == 'table' then break end
      second = redis.pcall('ZRANGE', queue, 0, 0)[1]
    end
    break
  end
end
