-- Puts a waiter in the queue of the first key that it cannot get, and returns the time until this
-- node may grant that key. Offers a free key to the first waiter in its queue, so a lost message or
-- an expired offer does not leave a free key unused. If a waiter for a single key is the next after
-- an offer, a refresh also takes back the offer of a process that is gone.
-- KEYS     the lock's keys, in the order in which every waiter asks for them
-- ARGV[1]  claim, see parts/queue.lua
-- ARGV[2]  milliseconds for which the queue lives from now on if this waiter is the first. Each
--          waiter before this one adds twice that time to the life of the queue, but at most 15
--          waiters count. The life of a queue is never shortened.
-- ARGV[3]  milliseconds from now for which keys are reserved for the waiter; 0 reserves none. The
--          reserved keys are those before the key for which the waiter queues.
-- Returns  {left, place, rank}. `left` is the milliseconds until this node may grant; 0 means now,
--          -1 unknown. `place` is the number of the key for which the waiter queues, from 1. `rank`
--          is the number of waiters before this one; -1 if this waiter could not be put in the
--          queue.
--          {left, place, 0, 1} for the first waiter if the label of the holder exists. The holder
--          then watches the key itself, and its release offers a deleted key to this waiter.
-- part: names
local claim, life = ARGV[1], ARGV[2]
local ticket, member = string.match(claim, '^(%d+):(.+)$')
local key, place, graces = KEYS[1], 1, 0
local value, is_new, rank = #KEYS == 1 and redis.pcall('GET', key), false, -1
local offered = type(value) == 'string' and tonumber(string.match(value, '^' .. OFFER .. '(%d+):'))
local is_own = offered and string.sub(value, -#member - 1) == ':' .. member
local is_token = type(value) == 'string' and string.find(value, OFFER, 1, true) ~= 1
local is_taken = is_token or offered and offered < tonumber(ticket) and not is_own
if is_taken then
  -- The only key is held, or is offered to an earlier waiter. This case is frequent, so it must not
  -- spend time on creating functions.
  local queue = QUEUE .. key
  -- part: entering
  -- The next waiter refreshes soon after an offer. If the process with the offer is gone, nobody
  -- would use the key until the offer ends.
  if offered and rank == 0 and not is_new then
    local manager, listeners = string.match(value, '^' .. OFFER .. '%d+:(%x+)'), nil
    if manager then
      -- part: listeners
    end
    is_taken = listeners ~= 0 or redis.pcall('DEL', key) ~= 1
  end
end
if not is_taken then
  -- part: queue
  -- part: admits
  -- part: value
  -- part: enter
  local values = {}
  for i = 1, #KEYS do
    place, key, value = i, KEYS[i], value_of(KEYS[i])
    values[i] = value
    if value and not admits(value, claim) then break end
  end
  local queue = QUEUE .. key
  is_new, rank = enter(queue, ticket, member, life)
  if #KEYS > 1 or is_new and value == READERS then
    -- part: entries
    if is_new and value == READERS then
      -- A missing permission must not end the script.
      local known, entries = pcall(live_entries, key)
      if known then announce_writer(key, entries) end
    end
    for i = 1, place - 1 do
      local kept = offer_to(claim)
      -- An unneeded SET would end the tracking of the key, so an offer that lives long enough is
      -- not set again.
      local is_kept = values[i] == kept and redis.call('PTTL', KEYS[i]) > grace_of(member)
      local is_due = not is_kept and tonumber(ARGV[3]) > 0
      if is_due and ask('SET', KEYS[i], kept, 'PX', ARGV[3]) then
        -- part: displaced
        wait_again(values[i] or '', KEYS[i], member)
      end
      step_out(QUEUE .. KEYS[i], member, KEYS[i])
    end
    for i = place + 1, #KEYS do leave(KEYS[i], member) end
  end
  if not value then
    -- part: offers
    if offer(key) then value = value_of(key) end
    rank = ask('ZRANK', queue, member) or -1
  end
  if value and is_offer_to(value, member) then return {0, place, 0} end
  if not value or admits(value, claim) then return {0, place, rank} end
  offered = is_offer(value)
  -- A writer waits one grace longer for a set of readers. The set may consist of offers only, and
  -- readers request the key when the set expires. If a writer requested the key at the same time,
  -- neither side might get enough votes.
  if value == READERS then graces = 1 end
end

-- The second waiter must know when the key expires, in case the first waiter and the holder die
-- together.
if rank == 0 and not offered and redis.pcall('ZRANGE', QUEUE .. key, 1, 1)[1] then
  -- part: queue
  -- part: second
  notify_second(QUEUE .. key, key)
end
local left = redis.call('PTTL', key)
if left < 0 or (rank > 1 and not offered) then return {-1, place, rank} end
if rank == 0 and not offered and type(value) == 'string' then
  -- A holder writes its label when it begins to watch its keys. A label begins with a part of the
  -- holder's token.
  local label, begin = redis.pcall('GET', OWNER .. key), string.sub(value, 1, 16) .. ' '
  if type(label) == 'string' and string.find(label, begin, 1, true) == 1 then
    return {left, place, 0, 1}
  end
end
-- If the first waiter and the holder die together, the second waiter comes one grace later. After
-- an offer, the member with the offer and the members behind it may be gone. So each member
-- refreshes 20 ms later than the member before it, because most locks are released within 20 ms.
local grace = math.min(tonumber(string.match(member, '[:#](%d+)$')) or 0, LONGEST_GRACE)
local step = offered and math.min(grace, 20) or grace
return {left + graces * grace + math.max(rank, 0) * step, place, rank}
