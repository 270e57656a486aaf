-- Replaces a field of a hash, if it is still what the writer saw.
--
-- KEYS  1 hash
-- ARGV  1 field  2 its value as seen  3 the new one
-- Returns {1}, or {0} when another one stands there
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {0} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return {1}
