-- Finds the segment of a moved call, in a hash of the calls whose IDs end alike. The hash is so small that Redis packs it.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 call ID
-- Returns the number of its segment (false for none), and the key and the field that have it
local field, bucket = string.match(ARGV[1], '^[^.]+%.(.+)(...)$')
if not field then return false end
local key = KEYS[1] .. MOVED .. bucket
return redis.call('HGET', key, field), key, field
