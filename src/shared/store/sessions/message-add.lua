-- Adds a message to those of a session.
--
-- KEYS  1 messages, the oldest first
-- ARGV  1 message (JSON)  2 how many are kept  3 for how long, ms
-- Returns {}
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], -ARGV[2], -1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {}
