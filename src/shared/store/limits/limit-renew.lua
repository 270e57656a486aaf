-- Renews the lease of a slot under a limit.
--
-- KEYS  1 holders
-- ARGV  1 job ID of the holder  2 until when it held the slot, by the last answer: a later start of the same job may hold it by now
--       3 lease, ms
-- Returns until when the slot is held, or false when it is another's
if redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= ARGV[2] then return false end
local heldUntil = text(nowMs() + ARGV[3])
redis.call('ZADD', KEYS[1], heldUntil, ARGV[1])
return heldUntil
