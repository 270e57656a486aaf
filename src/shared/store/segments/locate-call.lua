-- Says which segment has the record of a call. A call of a segment that has ended is forgotten: no worker has removed the segment yet.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 call ID
-- Returns {now}, and of a call that was moved: the segment's number, the kind of the store that has it (false for Redis), the digest of
-- its bytes (false when nothing is known of the segment)
local number = segment_of(KEYS, ARGV)
if not number then return {nowMs()} end
local endsAtMs = redis.call('ZSCORE', KEYS[1] .. SEGMENTS, number)
if endsAtMs and tonumber(endsAtMs) <= nowMs() then
  forget_moved(KEYS, {number, ARGV[1]})
  return {nowMs()}
end
local kind, digest = unpack(redis.call('HMGET', KEYS[1] .. SEGMENT .. number, 'in', 'digest'))
return {nowMs(), number, kind, digest}
