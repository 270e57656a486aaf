-- Ends a start under a limit, which has arrived by now. Gives its slot back, and hands what is free then to the first that wait,
-- who have a moment to come for it.
--
-- KEYS  1 holders  2 waiters  3 starts
-- ARGV  1 who held it  2 how many at a time, '0' for any number  3 how long a slot is kept for whoever was woken, ms
--       4 name of the start
-- Returns the names of those to wake
local now = nowMs()
redis.call('ZADD', KEYS[3], 'XX', 'LT', now, ARGV[4])
if ARGV[2] == '0' then return {} end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local woken = {}
local free = tonumber(ARGV[2]) - redis.call('ZCARD', KEYS[1])
while free > 0 do
  local first = redis.call('ZPOPMIN', KEYS[2])
  if not first[1] then break end
  redis.call('ZADD', KEYS[1], now + ARGV[3], first[1])
  woken[#woken + 1] = first[1]
  free = free - 1
end
return woken
