-- Hands keys from one attempt to the next. Each hand-over gets the answers that release.lua, and
-- then acquire.lua or acquire_guarded.lua, would give. There is one exception: if the release
-- offers the key to a waiter, its answer has no ticket. The acquire is then refused, and the
-- refusal shows the highest ticket.
-- KEYS     one key per hand-over. If the acquires are guarded, the node's marker and the fence
--          counters follow.
-- ARGV[1]  how many KEYS follow the keys of the hand-overs: 0 or 2
-- ARGV[2]  expected marker 'run_id:guard', see acquire_guarded.lua; '' without a guard
-- ARGV[i]  from 3 on, for each hand-over: the token to release; then token and ttl in milliseconds
--          of the acquire. A guarded acquire also has the proposed fence ('' without fencing) and
--          the slot of its key among the counters.
-- Returns  twice the number of hand-overs if each key was released and granted again. Else an
--          array in which answers to releases and acquires alternate. The array ends before the
--          first call that failed, and is empty if the node is not trusted. The caller then repeats
--          the calls without an answer, one by one.
-- A key with a queue is offered to the first waiter, and the acquire is refused. A missing key is
-- offered, too, as by release.lua.
local shared, expected = tonumber(ARGV[1]), ARGV[2]
local n, width = #KEYS - shared, shared > 0 and 5 or 3
local answers, handed, offered = {}, 0, nil
-- part: waiters
if not nobody_waits then
  -- part: queue
  -- part: offers
  offered = offer
end

local marker_key = KEYS[n + 1]
-- part: compare
if is_odd then
  -- part: marker
  if not is_trusted(marker, expected) then return answers end
end

for i = 1, n do
  local at = 3 + (i - 1) * width
  local key, holder = KEYS[i], redis.pcall('GET', KEYS[i])
  if type(holder) == 'table' then return answers end
  local ours, taken = holder == ARGV[at], nil
  if ours and not (offered and offered(key)) then
    taken = redis.pcall('SET', key, ARGV[at + 1], 'PX', ARGV[at + 2])
    if not taken.ok then
      -- A full server refuses only the first write of a script, and never a DEL. So the key is
      -- deleted before the second SET.
      redis.pcall('DEL', key)
      taken = redis.pcall('SET', key, ARGV[at + 1], 'PX', ARGV[at + 2])
    end
    if not taken.ok then return answers end
  else
    if not holder and offered then offered(key) end
    taken = redis.pcall('SET', key, ARGV[at + 1], 'NX', 'PX', ARGV[at + 2])
  end
  answers[2 * i - 1] = ours and 1 or 0

  if not taken then
    -- part: queue
    -- part: value
    -- part: tickets
    -- An error would hide that the key was released, so the holder would count as lost.
    local known, refused = pcall(function() return refusal(1, {key}, {value_of(key)}) end)
    if not known then return answers end
    answers[2 * i] = refused
  elseif not taken.ok then
    return answers
  else
    local counters, fence, slot, counter = KEYS[n + 2], ARGV[at + 3], ARGV[at + 4], nil
    if shared > 0 and fence ~= '' then
      -- part: fence
    end
    if not counter then
      answers[2 * i] = 1
      if ours then handed = handed + 1 end
    elseif type(counter) == 'string' then
      answers[2 * i] = {1, tonumber(counter)}
    else
      redis.call('DEL', key)
      return answers
    end
  end
end

if handed == n then return 2 * n end
return answers
