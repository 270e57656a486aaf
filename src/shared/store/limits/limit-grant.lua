-- Reserves what is free under a limit, slots or starts, for the first waiters, for a moment each.
--
-- KEYS  1 holders, or starts  2 the calls that wait for one  3 positions of the promoted calls, where these matter
-- ARGV  1 how many there may be  2 how long one is reserved, ms
-- Returns the names of the jobs to promote
local now, promoted = nowMs(), {}
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local free = ARGV[1] - redis.call('ZCARD', KEYS[1])
local first = free > 0 and redis.call('ZPOPMIN', KEYS[2], free) or {}
for position = 1, #first, 2 do
  redis.call('ZADD', KEYS[1], now + ARGV[2], first[position])
  if KEYS[3] then
    redis.call('ZADD', KEYS[3], first[position + 1], first[position])
    redis.call('PEXPIRE', KEYS[3], 600000)
    -- Some never come.
    if redis.call('ZCARD', KEYS[3]) > 1000 then redis.call('ZPOPMIN', KEYS[3]) end
  end
  promoted[#promoted + 1] = first[position]
end
-- The key may have begun with these.
if #promoted > 0 and redis.call('PTTL', KEYS[1]) == -1 then redis.call('PEXPIRE', KEYS[1], 600000) end
return promoted
