-- Leaves a trail that is not that of the files any more, and begins another one. Records that were chained in the old one and are in
-- no file wait to be chained again.
--
-- KEYS  1 head  2 records that wait  3 the trail that is left
-- ARGV  1 that trail  2 number of its head  3 ID of the new one  4 how long what is kept of the left one stays, ms
--       5.. records, one on each line
-- Returns {'begun'} or {'moved'}: the head is another one by now
local head = redis.call('HMGET', KEYS[1], 'trail', 'seq')
if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] then return {'moved'} end
for index = 5, #ARGV do redis.call('XADD', KEYS[2], '*', 'records', ARGV[index]) end
redis.call('HSET', KEYS[1], 'trail', ARGV[3], 'seq', '0', 'seal', ARGV[3])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return {'begun'}
