-- Takes or renews the lease of the process that chains the trail.
--
-- KEYS  1 lease  2 head
-- ARGV  1 holder  2 lease, ms  3 ID of a new trail, if there is none
-- Returns {trail, seq, signature}; nothing when another process has the lease
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('HSET', KEYS[2], 'trail', ARGV[3], 'seq', '0', 'seal', ARGV[3])
end
return redis.call('HMGET', KEYS[2], 'trail', 'seq', 'seal')
