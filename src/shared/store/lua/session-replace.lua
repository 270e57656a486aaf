-- Replaces a session's record, if it is still the one that the writer saw. Its time to live stays.
--
-- KEYS  1 session
-- ARGV  1 the record as seen  2 the new one
-- Returns {1}, or {0} when another one stands there
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {0} end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return {1}
