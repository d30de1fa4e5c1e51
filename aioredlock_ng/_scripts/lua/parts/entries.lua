-- How members leave queues, and how readers leave keys. parts/queue.lua explains queues. Scripts
-- include it before this part.
-- part: offers
-- part: members
-- part: first
-- part: second
-- part: admits
-- part: readers

-- Returns true if a writer waits for a key. First removes the writers whose processes are gone,
-- because they would keep readers out.
local function writer_waits(key)
  local queue = QUEUE .. key
  while true do
    local first = taker(queue, 0, 0)
    if not first then return false end
    if not is_gone(first) or not ask('ZREM', queue, first) then return true end
  end
end

-- Notifies the processes with these entries of readers that a writer waits for the key.
local function announce_writer(key, entries)
  local notified = {}
  for _, entry in ipairs(entries) do
    local manager = string.match(entry, '^%x+:(%x+)$')
    if manager and not notified[manager] then
      notified[manager] = true
      publish(manager, '-1 ' .. manager .. ' ' .. key)
    end
  end
end

-- Notifies the first writer of its longest wait for a key held by readers: the remaining time of
-- the key plus one grace, as in stand.lua. parts/queue.lua explains the grace. The writer may have
-- read a later expiry before. Without this message, it would wait for that expiry. Tracking is not
-- enough, because a write by a reader of the writer's own process ends the tracking without a
-- message. Writers whose processes are gone are removed.
local function notify_expiry(key)
  local queue, left = QUEUE .. key, ask('PTTL', key)
  while left do
    local first = taker(queue, 0, 0)
    if not first or notify(first, left + grace_of(first), key) then return end
    if not ask('ZREM', queue, first) then return end
  end
end

-- Removes an entry of a key held by readers. If no entry is left, offers the key to the next
-- waiters. Returns 1 if the entry was there, else 0.
local function leave_readers(key, entry)
  local last = prune(key)
  local removed = redis.call('ZREM', key, entry)
  if not settle(key) then
    offer_after_readers(key)
  elseif entry == last then
    notify_expiry(key)
  end
  return removed
end

-- Removes a member from a queue. If the member was the first that accepts its slots, the next
-- member is notified. If the member was the first or the second waiter for a lock, the new second
-- waiter is notified, too.
local function step_out(queue, member, key)
  local limit = limit_of(member) or 0
  local first, rank = taker(queue, limit, 0), ask('ZRANK', queue, member)
  if ask('ZREM', queue, member) ~= 1 then return end
  if first == member then notify_first(queue, key, limit) end
  if limit == 0 and (first == member or rank == 1) then notify_second(queue, key) end
end

-- Removes a member that no longer wants the key. An offer to this member goes to the next member.
-- If a writer leaves and no other writer waits, the waiting readers may enter.
local function leave(key, member)
  local value, queue = ask('GET', key), queue_for(member, key)
  if is_reader(member) then
    step_out(queue, member, key)
    if ask('ZSCORE', key, offer_to(member)) then
      leave_readers(key, offer_to(member))
    end
  elseif value and is_offer_to(value, member) then
    ask('ZREM', queue, member)
    if not offer(key) then ask('DEL', key) end
  else
    step_out(queue, member, key)
    if not value and not taker(QUEUE .. key, 0, 0) then offer_readers(key) end
  end
end
