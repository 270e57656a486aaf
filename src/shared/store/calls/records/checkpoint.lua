-- Writes the checkpoint of a running attempt, for the next attempt of its call. Only the newest fence may.
--
-- KEYS  1 record
-- ARGV  1 fence  2 the signature, a line break and the checkpoint (JSON)
-- Returns {code}: written · fenced · ended
--
-- A call that made progress since its workers were lost did not crash them, so its blame is cleared. A tool may crash each worker and write
-- another checkpoint each time: it is forgiven only so often.
local MAX_FORGIVEN = 20
local fields = redis.call('HMGET', KEYS[1], 'state', 'fence', 'checkpoint', 'blamed', 'forgiven')
if fields[1] ~= 'inflight' then return {'ended'} end
if fields[2] ~= ARGV[1] then return {'fenced'} end
redis.call('HSET', KEYS[1], 'checkpoint', ARGV[2])
if fields[4] and fields[3] ~= ARGV[2] and tonumber(fields[5] or 0) < MAX_FORGIVEN then
  redis.call('HDEL', KEYS[1], 'blamed', 'lostAlone')
  redis.call('HINCRBY', KEYS[1], 'forgiven', fields[4])
end
return {'written'}
