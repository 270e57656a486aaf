-- Stores a part of a large text, with a short life: the script of a record that refers to the text extends it. A part that is written
-- again, because an answer was lost, does not shorten an extended life.
--
-- KEYS  1 the text
-- ARGV  1 number of the part  2 the part as it is stored  3 time to live of an unreferenced text, ms
-- Returns {'kept'}
local ttlMs = redis.call('PTTL', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ttlMs ~= -1 and ttlMs < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return {'kept'}
