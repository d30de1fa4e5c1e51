-- The number of waiters; see parts/queue.lua.
-- part: queue
-- part: members
-- part: has_readers
-- part: readers

-- Returns how many members a queue has; -1 if that is not known. ZCARD would need a right that
-- waiting does not need.
local function length_of(queue)
  local last = ask('ZREVRANGE', queue, 0, 0)
  if not last then return -1 end
  if not last[1] then return 0 end
  return (ask('ZRANK', queue, last[1]) or -2) + 1
end

-- Returns for each key how many members wait for it; -1 if that is not known. A member to which the
-- key is offered has left the queue, but still counts as waiting. A waiter for a semaphore counts
-- as a waiter for each slot. A semaphore may have a thousand slots. So one request tests whether
-- any slot has a queue of its own, and the queue that the slots share is counted once.
local function waiting(keys, values)
  local queues, lengths, counts = {}, {}, {}
  for _, key in ipairs(keys) do
    queues[#queues + 1] = QUEUE .. key
    queues[#queues + 1] = READERS_QUEUE .. key
  end
  local nobody = #keys > 1 and ask('EXISTS', unpack(queues)) == 0
  for i, key in ipairs(keys) do
    local count, shared = nobody and 0 or length_of(QUEUE .. key), slots_of(key)
    local readers = nobody and 0 or length_of(READERS_QUEUE .. key)
    if shared and not lengths[shared] then lengths[shared] = length_of(shared) end
    local others = shared and lengths[shared] or 0
    local _, member = claim_in(values[i] or '')
    if member and not ask('ZRANK', queue_for(member, key), member) then count = count + 1 end
    for _, entry in ipairs(not values[i] and ask('ZRANGE', key, 0, -1) or {}) do
      if is_offer(entry) and has_entry(key, entry, now_ms()) then count = count + 1 end
    end
    counts[i] = math.min(count, others, readers) < 0 and -1 or count + others + readers
  end
  return counts
end
