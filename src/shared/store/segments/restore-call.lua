-- Puts a copy of a moved record back for a while: all that reads a record reads the copy. The entry that stands for it stays.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 call ID  2 number of its segment  3 when the record ends  4 how long the copy is kept, ms  5.. its fields and values
-- Returns {code}: restored (also when it was there) · changed (the call is in another segment, or in none)
local number = segment_of({KEYS[1]}, {ARGV[1]})
if number ~= ARGV[2] then return {'changed'} end
local record = KEYS[1] .. RECORDS .. ARGV[1]
local untilMs = text(math.min(nowMs() + ARGV[4], tonumber(ARGV[3])))
if redis.call('HEXISTS', record, 'state') == 0 then
  redis.call('HSET', record, 'segment', number, 'keptUntilMs', ARGV[3], unpack(ARGV, 5))
end
redis.call('PEXPIREAT', record, untilMs)
return {'restored'}
