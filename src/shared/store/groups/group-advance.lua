-- Writes what a driver has decided, and renews its lease. A driver that has lost its lease to another one writes nothing.
--
-- KEYS  1 record  2 groups that are not over, by the end of their lease
-- ARGV  1 group  2 fence  3 length of the lease, ms; 0 gives it back  4 how long the record is kept, ms, when the group is over  5 channel
--       6 what is published then  7... fields and values
-- Returns {whether it was written, now, who cancelled the group}
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[2] or not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {0} end
local now = nowMs()
for at = 7, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
if ARGV[4] == '' then
  redis.call('ZADD', KEYS[2], text(now + ARGV[3]), ARGV[1])
else
  redis.call('HSET', KEYS[1], 'endedAtMs', text(now))
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  redis.call('PUBLISH', ARGV[5], ARGV[6])
end
return {1, now, redis.call('HGET', KEYS[1], 'cancelled')}
