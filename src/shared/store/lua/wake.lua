-- Lets a job that was put off run now. One that is not (or not yet) put off comes by itself.
--
-- KEYS  1 the call's record  2 delayed jobs  3 marker
-- ARGV  1 job ID
-- Returns {1} when it was woken
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {0} end
if redis.call('HEXISTS', KEYS[1], 'notBeforeMs') == 1 then redis.call('HSET', KEYS[1], 'notBeforeMs', 0) end
redis.call('ZADD', KEYS[2], 'XX', nowMs() * 0x1000, ARGV[1])
redis.call('ZADD', KEYS[3], 0, '0')
return {1}
