-- Writes a field of a group that is not over, and tells its driver. The first value of a field stays.
--
-- KEYS  1 record  2 groups that are not over, by the end of their lease
-- ARGV  1 group  2 field  3 value  4 channel  5 what is published
-- Returns {written | kept | over}
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {'over'} end
local written = redis.call('HSETNX', KEYS[1], ARGV[2], ARGV[3])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return {written == 1 and 'written' or 'kept'}
