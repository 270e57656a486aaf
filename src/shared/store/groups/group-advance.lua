-- Writes a driver's step, and renews its lease. A driver that has lost its lease to another one writes nothing.
--
-- KEYS  1 record  2 open groups, by the end of their lease
-- ARGV  1 group  2 fence  3 length of the lease, ms; 0 releases it  4 TTL of the record, ms, when the group has ended, else ''
--       5 channel  6 message that is published at the end, else ''  7... fields and values
-- Returns {1 if it was written, now, actor that cancelled the group}
local fence, endedAtMs, cancelledBy = unpack(redis.call('HMGET', KEYS[1], 'fence', 'endedAtMs', 'cancelled'))
if fence ~= ARGV[2] or endedAtMs then return {0} end
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
return {1, now, cancelledBy}
