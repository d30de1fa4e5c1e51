-- The formats of offers and claims; see parts/queue.lua. The offer to a waiting reader has no
-- ticket, because it is an entry in a set of readers.
-- part: names

local function offer_to(claim) return OFFER .. claim end

-- Returns the ticket and the member of a claim, or nothing for an empty claim.
local function ticket_and_member(claim) return string.match(claim, '^(%d+):(.+)$') end

local CLAIM_IN_OFFER = '^' .. OFFER .. '(%d+):(.+)$'

-- Returns the ticket and the member of an offer, or nothing for any other value.
local function claim_in(value) return string.match(value, CLAIM_IN_OFFER) end

local function is_offer(value) return string.find(value, OFFER, 1, true) == 1 end
