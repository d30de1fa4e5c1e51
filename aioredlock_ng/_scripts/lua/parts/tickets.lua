-- The tickets of the waiters for a key, and refusals. parts/queue.lua explains tickets. Scripts
-- include it before this part.

-- Returns the highest ticket in a queue; 0 without a queue.
local function last_ticket(queue)
  local last = queue and ask('ZREVRANGE', queue, 0, 0, 'WITHSCORES') or {}
  return tonumber(last[2]) or 0
end

-- Returns the highest ticket among the waiters for a key; 0 if nobody waits. If the value of the
-- key is an offer, the ticket in the offer counts, too. The result is limited, because a larger
-- ticket is damage.
local function highest_ticket(key, value)
  local offered = tonumber((claim_in(value or ''))) or 0
  local writers, readers = last_ticket(QUEUE .. key), last_ticket(READERS_QUEUE .. key)
  local highest = math.max(writers, readers, last_ticket(slots_of(key)), offered)
  return math.min(highest, LARGEST_TICKET)
end

-- Returns a refusal because of the key at `place`: {0, the remaining milliseconds of that key (-1
-- without expiry, -2 without a key), `place`, the highest ticket in the queues of all keys}.
-- A waiter has one ticket for all its keys. The ticket must be above all tickets in the queues of
-- these keys. Otherwise later waiters for one of the keys would overtake the waiter for ever.
local function refusal(place, keys, values)
  local highest = 0
  for i, key in ipairs(keys) do highest = math.max(highest, highest_ticket(key, values[i])) end
  return {0, redis.call('PTTL', keys[place]), place, highest}
end
