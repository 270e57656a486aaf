-- Ends a start under a limit, which has arrived by now, or was not used. Gives its slot back to the first that wait (limit_grant).
--
-- KEYS  1 holders  2 waiters  3 starts
-- ARGV  1 who held it  2 how many at a time, '0' for any number  3 how long a slot is kept for whoever was woken, ms
--       4 name of the start  5 '1' when it was not used  6 how long the slot is kept for the same one, ms, '0' to give it back
-- Returns the names of those to wake
if ARGV[5] == '1' then
  redis.call('ZREM', KEYS[3], ARGV[4])
else
  redis.call('ZADD', KEYS[3], 'XX', 'LT', nowMs(), ARGV[4])
end
if ARGV[2] == '0' then return {} end
if ARGV[6] ~= '0' then
  redis.call('ZADD', KEYS[1], 'XX', nowMs() + ARGV[6], ARGV[1])
  return {}
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return limit_grant({KEYS[1], KEYS[2]}, {ARGV[2], ARGV[3]})
