-- Records that a call which runs alone has reached its tool's code: if its worker is lost from now on, it was lost in that code.
--
-- KEYS  1 record
-- ARGV  1 fence
if redis.call('HGET', KEYS[1], 'fence') == ARGV[1] then redis.call('HSET', KEYS[1], 'alone', ARGV[1] .. '!') end
return 1
