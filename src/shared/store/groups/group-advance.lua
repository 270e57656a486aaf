-- Writes a driver's step, and renews its lease. A driver that has lost its lease to another one writes nothing.
--
-- KEYS  1 record  2 open groups, by the end of their lease
-- ARGV  1 group  2 fence  3 length of the lease, ms; 0 releases it  4 TTL of the record, ms, when the group has ended, else ''
--       5 channel  6 message that is published at the end  7... fields and values
-- Returns {1 if it was written, now, actor that cancelled the group}
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[2] or not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {0} end
local now = nowMs()
for index = 7, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[index], ARGV[index + 1]) end
if ARGV[4] == '' then
  redis.call('ZADD', KEYS[2], text(now + ARGV[3]), ARGV[1])
else
  redis.call('HSET', KEYS[1], 'endedAtMs', text(now))
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  redis.call('PUBLISH', ARGV[5], ARGV[6])
end
return {1, now, redis.call('HGET', KEYS[1], 'cancelled')}
