-- Stores a new session, unless its key is taken.
--
-- KEYS  1 session
-- ARGV  1 the record  2 its time to live, ms
-- Returns {1}, or {0} when the key is taken
return {redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') and 1 or 0}
