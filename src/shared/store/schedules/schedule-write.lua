-- Writes a schedule, if its progress is still what the writer saw. Each change of a record changes the progress, too.
--
-- KEYS  1 records  2 progress  3 when schedules are due
-- ARGV  1 ID  2 the progress as seen; empty when there was none  3 its new progress; empty removes the schedule
--       4 its new record; empty leaves the record  5 when it is due, ms; empty for never
-- Returns {1}, or {0} when another process has written in the meantime
if (redis.call('HGET', KEYS[2], ARGV[1]) or '') ~= ARGV[2] then return {0} end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
  if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], ARGV[1], ARGV[4]) end
end
if ARGV[5] == '' then redis.call('ZREM', KEYS[3], ARGV[1]) else redis.call('ZADD', KEYS[3], ARGV[5], ARGV[1]) end
return {1}
