-- Writes a new group, which its writer drives, unless a group of this ID exists.
--
-- KEYS  1 record  2 open groups, by the end of their lease  3... indexes of all groups, by their creation time
-- ARGV  1 group  2 creation time, ms  3 length of the lease, ms  4 longest duration of a group, ms  5... fields and values
-- Returns {1 if it was written}
if redis.call('EXISTS', KEYS[1]) == 1 then return {0} end
local createdAt, maxDuration = tonumber(ARGV[2]), tonumber(ARGV[4])
for index = 5, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[index], ARGV[index + 1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('ZADD', KEYS[2], text(createdAt + ARGV[3]), ARGV[1])
for index = 3, #KEYS do
  redis.call('ZADD', KEYS[index], ARGV[2], ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[index], 0, text(createdAt - 2 * maxDuration))
  redis.call('PEXPIRE', KEYS[index], text(2 * maxDuration))
end
return {1}
