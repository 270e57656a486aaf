-- Writes down that the only call of a worker comes to its tool's code: what is lost from here on is lost in that code.
--
-- KEYS  1 record
-- ARGV  1 fence
if redis.call('HGET', KEYS[1], 'fence') == ARGV[1] then redis.call('HSET', KEYS[1], 'alone', ARGV[1] .. '!') end
return 1
