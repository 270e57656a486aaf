-- Stores the reply of an agent's turn, unless the agent has received another message since.
--
-- KEYS  1 record  2 jobs that wait for its answer
-- ARGV  1 parent  2 turn  3 'completed', 'failed' or 'paused'  4 reply, signed  5 time to live, ms  6 broadcast channel  7 broadcast (JSON)
-- Returns {code}: late (another message, closed, or another reply before) · unknown
--   replied, and the jobs to be promoted
local fields = redis.call('HMGET', KEYS[1], 'parent', 'state', 'turn', 'reply')
if fields[1] ~= ARGV[1] then return {'unknown'} end
if fields[2] == 'closed' or fields[3] ~= ARGV[2] then return {'late'} end
-- The first answer stands. The same one again gets the same result: that was lost on the way.
local answered = fields[2] == 'completed' or fields[2] == 'failed'
if answered and fields[4] ~= ARGV[4] then return {'late'} end
redis.call('HSET', KEYS[1], 'state', ARGV[3], 'reply', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PUBLISH', ARGV[6], ARGV[7])
local jobs = redis.call('SMEMBERS', KEYS[2])
redis.call('DEL', KEYS[2])
return {'replied', unpack(jobs)}
