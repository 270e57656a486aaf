-- Gives an agent more to do, or closes it. Sending the same message again changes nothing.
--
-- KEYS  1 record  2 mailbox  3 agents of the session that are not closed, or whose end was not read yet
--       4 jobs that wait for its answer
-- ARGV  1 parent  2 ID of the message  3 'input', 'resumed' or 'closed'  4 message, signed  5 time to live, ms
--       6 broadcast channel  7 broadcast (JSON)
-- Returns {code}: again · unknown · closed
--   sent, and the jobs to be promoted: there will be no answer
local fields = redis.call('HMGET', KEYS[1], 'parent', 'state')
if fields[1] ~= ARGV[1] then return {'unknown'} end
if redis.call('HSETNX', KEYS[1], 'told:' .. ARGV[2], '') == 0 then return {'again'} end
if fields[2] == 'closed' then return {'closed'} end
local turn = redis.call('HINCRBY', KEYS[1], 'turn', 1)
redis.call('HSET', KEYS[1], 'state', ARGV[3] == 'closed' and 'closed' or 'queued')
redis.call('HDEL', KEYS[1], 'reply')
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('RPUSH', KEYS[2], turn .. ' ' .. ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('PEXPIRE', KEYS[3], ARGV[5])
redis.call('PUBLISH', ARGV[6], ARGV[7])
if ARGV[3] ~= 'closed' then return {'sent'} end
local jobs = redis.call('SMEMBERS', KEYS[4])
redis.call('DEL', KEYS[4])
return {'sent', unpack(jobs)}
