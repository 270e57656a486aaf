-- Lets an entry stand for the records of calls that a segment has. A record that has changed since it was read stays.
--
-- KEYS  1 base of the partition's keys  2 the segment, or its mark
-- ARGV  1 number of the segment  2 digest of its bytes  3 when its last record ends  4 how long it is kept after that, ms
--       then for each call: ID, what its record said of its end ('ended')
-- Returns {how many calls it stands for}, or {-1} when the segment is gone; nothing was written. A script that runs twice, because its first
-- answer was lost, answers the same: the mover drops a segment that stands for none.
local base, segment = KEYS[1], KEYS[2]
if redis.call('EXISTS', segment) == 0 then return {-1} end
redis.call('HSET', segment, 'digest', ARGV[2])
redis.call('PEXPIREAT', segment, text(ARGV[3] + ARGV[4]))
redis.call('ZADD', base .. SEGMENTS, ARGV[3], ARGV[1])
local moved, known = 0, 0
for at = 5, #ARGV, 2 do
  local record = base .. RECORDS .. ARGV[at]
  local ended, copyOf = unpack(redis.call('HMGET', record, 'ended', 'segment'))
  local number, key, field = segment_of({base}, {ARGV[at]})
  if number == ARGV[1] then
    known = known + 1
  elseif ended == ARGV[at + 1] and not copyOf then
    redis.call('HSET', key, field, ARGV[1])
    redis.call('UNLINK', record)
    moved = moved + 1
  end
end
if moved > 0 then redis.call('INCRBY', base .. SEGMENTS .. ':calls', moved) end
return {moved + known}
