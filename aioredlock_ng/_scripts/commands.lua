-- Tells which of some commands the server does not know. Reads and writes nothing.
-- KEYS     none
-- ARGV     names of commands
-- Returns  an array of those that are unknown.
-- Each is called without arguments: servers refuse their number before they look at the user's rights, so no right but EVAL is
-- needed. TIME alone takes none, and is executed.
local unknown = {}
for _, name in ipairs(ARGV) do
  local reply = redis.pcall(name)
  if type(reply) == 'table' and reply.err and string.find(string.lower(reply.err), 'unknown', 1, true) then
    unknown[#unknown + 1] = name
  end
end
return unknown
