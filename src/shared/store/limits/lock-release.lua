-- Releases a call's lock, or its position among the waiters. The lock of a newer attempt, or of another job, stays.
--
-- KEYS  1 key prefix of locks
-- ARGV  1 call ID  2 job ID  3 fence, 0 when no attempt came  4 lease, ms
-- Returns the IDs of the jobs to promote, and whether there are any
local call = KEYS[1] .. 'call:' .. ARGV[1]
local known = redis.call('HMGET', call, 'resource', 'mode', 'fence', 'job')
if not known[1] or known[4] ~= ARGV[2] or tonumber(known[3]) > tonumber(ARGV[3]) then return {}, false end
redis.call('DEL', call)
redis.call('ZREM', KEYS[1] .. 'holders:' .. known[1], known[2] .. ARGV[1])
redis.call('ZREM', KEYS[1] .. 'waiters:' .. known[1], known[2] .. ARGV[1])
local promoted = lock_grant(KEYS, {known[1], ARGV[4]})
return promoted, #promoted > 0
