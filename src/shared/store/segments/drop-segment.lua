-- Forgets a segment all of whose calls are forgotten.
--
-- KEYS  1 base of the partition's keys  2 the segment, or its mark
-- ARGV  1 number of the segment
-- Returns {1}
local segments = KEYS[1] .. SEGMENTS
redis.call('ZREM', segments, ARGV[1])
redis.call('SREM', segments .. ':lost', ARGV[1])
redis.call('UNLINK', KEYS[2])
if redis.call('EXISTS', segments) == 0 then redis.call('UNLINK', segments .. ':calls') end
return {1}
