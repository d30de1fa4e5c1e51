-- Returns the commands that the server does not know. Reads and writes nothing.
-- KEYS     none
-- ARGV     names of commands
-- Returns  an array of the unknown names
-- Each command is called without arguments. A server checks the number of arguments before it
-- checks the rights of the user, so this script needs no right but EVAL. Only TIME is executed,
-- because it needs no arguments.
local unknown = {}
for _, name in ipairs(ARGV) do
  local reply = redis.pcall(name)
  local words = type(reply) == 'table' and reply.err
  if words and string.find(string.lower(words), 'unknown', 1, true) then
    unknown[#unknown + 1] = name
  end
end
return unknown
