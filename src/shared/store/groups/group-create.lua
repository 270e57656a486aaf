-- Writes a new group, which its writer drives, unless there is one of its ID.
--
-- KEYS  1 record  2 groups that are not over, by the end of their lease  3... indexes of all groups, by when they were made
-- ARGV  1 group  2 when it was made, ms  3 length of the lease, ms  4 how long a group may take, ms  5... fields and values
-- Returns {whether it was written}
if redis.call('EXISTS', KEYS[1]) == 1 then return {0} end
local createdAt, longest = tonumber(ARGV[2]), tonumber(ARGV[4])
for at = 5, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('ZADD', KEYS[2], text(createdAt + ARGV[3]), ARGV[1])
for at = 3, #KEYS do
  redis.call('ZADD', KEYS[at], ARGV[2], ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[at], 0, text(createdAt - 2 * longest))
  redis.call('PEXPIRE', KEYS[at], text(2 * longest))
end
return {1}
