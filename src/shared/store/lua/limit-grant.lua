-- Keeps the free slots of a limit for the first that wait, who have a moment to come for them.
--
-- KEYS  1 holders  2 waiters
-- ARGV  1 how many at a time  2 how long a slot is kept, ms
-- Returns the names of those to wake
local now, woken = nowMs(), {}
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local free = ARGV[1] - redis.call('ZCARD', KEYS[1])
local first = free > 0 and redis.call('ZPOPMIN', KEYS[2], free) or {}
for position = 1, #first, 2 do
  redis.call('ZADD', KEYS[1], now + ARGV[2], first[position])
  woken[#woken + 1] = first[position]
end
return woken
