-- Removes a field of a hash, if it is still what the remover saw.
--
-- KEYS  1 hash
-- ARGV  1 field  2 its value as seen
-- Returns {1}, or {0} when another one stands there
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {0} end
redis.call('HDEL', KEYS[1], ARGV[1])
return {1}
