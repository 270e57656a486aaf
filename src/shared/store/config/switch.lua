-- Stores an operator's switch of the reliability layer, and broadcasts it.
--
-- KEYS  1 switches
-- ARGV  1 tool, or '*' for all, which removes the switches of single tools  2 the switch, signed  3 broadcast channel
-- Returns {}
if ARGV[1] == '*' then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PUBLISH', ARGV[3], '{"type":"switches"}')
return {}
