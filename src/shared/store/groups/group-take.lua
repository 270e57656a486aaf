-- Takes the lease of a group whose driver's lease has ended. The new fence makes Redis refuse further writes of that driver.
--
-- KEYS  1 record  2 open groups, by the end of their lease
-- ARGV  1 group  2 length of the lease, ms
-- Returns {fence, fields and values}, {} when another process drives it or it has ended
local lease = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not lease or tonumber(lease) > nowMs() then return {} end
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('ZREM', KEYS[2], ARGV[1])
  return {}
end
local fence = redis.call('HINCRBY', KEYS[1], 'fence', 1)
redis.call('ZADD', KEYS[2], text(nowMs() + ARGV[2]), ARGV[1])
return {fence, redis.call('HGETALL', KEYS[1])}
