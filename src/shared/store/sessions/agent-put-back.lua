-- Returns a message that was taken and not delivered to the front of an agent's mailbox.
--
-- KEYS  1 record  2 mailbox  3 agents of the session that are not closed, or whose end was not read yet
-- ARGV  1 agent  2 turn and message  3 time to live, ms  4 broadcast channel  5 broadcast (JSON)
-- Returns {code}: kept · gone
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return {'gone'} end
redis.call('LPUSH', KEYS[2], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
redis.call('SADD', KEYS[3], ARGV[1])
redis.call('PEXPIRE', KEYS[3], ARGV[3])
if state ~= 'closed' then redis.call('HSET', KEYS[1], 'state', 'queued') end
redis.call('PUBLISH', ARGV[4], ARGV[5])
return {'kept'}
