-- Keeps a part of a large text, for a while: whoever refers to the text lets it live as long as it does itself. A part that is
-- written again, because an answer was lost, takes nothing back of that.
--
-- KEYS  1 the text
-- ARGV  1 number of the part  2 the part as it is stored  3 how long an unreferenced part is kept, ms
-- Returns {'kept'}
local leftMs = redis.call('PTTL', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if leftMs ~= -1 and leftMs < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return {'kept'}
