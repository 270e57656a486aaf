-- Starts a new trail, because the files have records of the old one that Redis has lost. Chained records of the old trail that are in no
-- file wait to be chained again.
--
-- KEYS  1 head  2 waiting records  3 the old trail
-- ARGV  1 ID of the old trail  2 number of its head  3 ID of the new one  4 time to live of the old trail, ms
--       5.. records, one on each line
-- Returns {'begun'}, or {'moved'} when the head has changed
local head = redis.call('HMGET', KEYS[1], 'trail', 'seq')
if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] then return {'moved'} end
for index = 5, #ARGV do redis.call('XADD', KEYS[2], '*', 'records', ARGV[index]) end
redis.call('HSET', KEYS[1], 'trail', ARGV[3], 'seq', '0', 'seal', ARGV[3])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return {'begun'}
