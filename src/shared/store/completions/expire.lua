-- Ends a pending call whose time is over.
--
-- KEYS  1, 2 bases of keys, as settle takes them
-- ARGV  as settle takes them
-- Returns {code, now}: what settle returns · early: it was extended meanwhile
local now = nowMs()
local phase, untilMs = unpack(redis.call('HMGET', KEYS[1] .. RECORDS .. ARGV[1], 'phase', 'pendingUntilMs'))
if phase ~= 'pending' then return {'ended', now} end
if tonumber(untilMs) > now then return {'early', now} end
return end_pending(KEYS, ARGV)
