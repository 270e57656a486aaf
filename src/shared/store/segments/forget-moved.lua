-- Forgets that calls were moved to a segment: their records have ended, or an operator forgets them.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 number of the segment  2.. call IDs
-- Returns {how many were forgotten}
local forgotten = 0
for at = 2, #ARGV do
  local number, key, field = segment_of({KEYS[1]}, {ARGV[at]})
  if number == ARGV[1] then forgotten = forgotten + redis.call('HDEL', key, field) end
end
if forgotten > 0 then redis.call('INCRBY', KEYS[1] .. SEGMENTS .. ':calls', -forgotten) end
return {forgotten}
