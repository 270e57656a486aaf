-- Replaces or removes a field of a hash, if it still has the value that the writer read.
--
-- KEYS  1 hash
-- ARGV  1 field  2 expected value  3 new value; without it, the field is removed
-- Returns {1}, or {0} when the field has another value
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {0} end
if ARGV[3] then redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) else redis.call('HDEL', KEYS[1], ARGV[1]) end
return {1}
