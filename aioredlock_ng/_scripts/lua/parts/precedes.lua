-- Returns true if a member comes before another one with the same ticket. The order is that of
-- bytes, as in the queue. The operator `<` compares in the order of the server's locale.
local function precedes(member, other)
  for at = 1, #member do
    local own, its = string.byte(member, at), string.byte(other, at)
    if own ~= its then return its ~= nil and own < its end
  end
  return #member < #other
end
