-- Notes for people how many wait for a lock in one process.
-- KEYS     the keys of the notes
-- ARGV[1]  how many
-- ARGV[2]  milliseconds that the notes live
-- Returns  1. pcall: a note that cannot be written is no harm to anybody.
for _, key in ipairs(KEYS) do redis.pcall('SET', key, ARGV[1], 'PX', ARGV[2]) end
return 1
