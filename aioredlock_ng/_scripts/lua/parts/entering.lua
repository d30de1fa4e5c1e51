-- Adds `member` to `queue`, or confirms its place there. Sets `is_new` to true if the member was
-- not in the queue before. Sets `rank` to its place, from 0; -1 if the member could not be added.
-- Prolongs the life of the queue, because a release would notify nobody after the queue has
-- expired. If the processes of the members just before this one are gone, removes these members.
-- Otherwise this member would not learn that it is the first. The caller declares `queue`,
-- `ticket`, `member`, `life` (see stand.lua), `is_new` and `rank`, and includes parts/names.lua.
-- parts/queue.lua explains queues. The part is not a function, because creating functions would
-- slow each entry.
local known = redis.pcall('ZRANK', queue, member)
-- ZRANK fails if the user has no rights to queues. A waiter without these rights must not enter,
-- because it could not leave again. Each hand-over would then wait for this waiter.
if type(known) ~= 'table' then
  if redis.pcall('ZADD', queue, 'CH', ticket, member) == 1 then
    rank = redis.pcall('ZRANK', queue, member)
  else
    rank = known
  end
  if type(rank) ~= 'number' then rank = -1 end
  is_new = not known and rank >= 0
  while rank > 0 do
    local before = redis.pcall('ZRANGE', queue, rank - 1, rank - 1)[1]
    local manager, listeners = before and string.match(before, '^%x+'), nil
    if not manager then break end
    -- part: listeners
    if listeners ~= 0 then break end
    if type(redis.pcall('ZREM', queue, before)) == 'table' then break end
    rank = rank - 1
  end
  local ends = life * (1 + 2 * math.min(math.max(rank, 0), 15))
  local left = redis.pcall('PTTL', queue)
  if type(left) ~= 'number' or left < ends then
    local done = redis.pcall('PEXPIRE', queue, ends)
    -- A queue that cannot expire would outlive its members, so a new member leaves it again.
    if type(done) == 'table' and is_new then
      redis.pcall('ZREM', queue, member)
      is_new, rank = false, -1
    end
  end
end
