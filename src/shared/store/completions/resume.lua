-- Lets an expired pending call have its next attempt.
--
-- KEYS  1 base of keys of the partition  2 bucket of the tool's retries
-- ARGV  1 call ID  2 fence  3 attempts  4 floor of the bucket  5 how long the bucket is kept, ms
-- Returns {code, now}: postponed · ended · early: it was extended meanwhile · exhausted: the bucket is empty
local record, now = KEYS[1] .. RECORDS .. ARGV[1], nowMs()
local fields = redis.call('HMGET', record, 'state', 'phase', 'fence', 'pendingUntilMs')
if fields[1] ~= 'inflight' or fields[3] ~= ARGV[2] then return {'ended', now} end
-- The first answer was lost on the way.
if fields[2] == 'waiting-retry' then return {'postponed', now} end
if fields[2] ~= 'pending' then return {'ended', now} end
if tonumber(fields[4]) > now then return {'early', now} end
if not takeRetry(KEYS[2], ARGV[4], ARGV[5]) then return {'exhausted', now} end
redis.call('HSET', record, 'phase', 'waiting-retry', 'attempts', ARGV[3], 'notBeforeMs', text(now), 'updatedAtMs', text(now))
redis.call('HDEL', record, 'pendingUntilMs', 'pendingNumber', 'onExpiry')
redis.call('ZREM', KEYS[1] .. PENDING, ARGV[1])
redis.call('ZADD', KEYS[1] .. INFLIGHT, text(now), ARGV[1])
return {'postponed', now}
