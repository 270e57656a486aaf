-- Writes a field of an open group, and notifies its driver. The first value of a field is kept.
--
-- KEYS  1 record  2 open groups, by the end of their lease
-- ARGV  1 group  2 field  3 value  4 channel  5 message
-- Returns {written | kept | over}
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {'over'} end
local written = redis.call('HSETNX', KEYS[1], ARGV[2], ARGV[3])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return {written == 1 and 'written' or 'kept'}
