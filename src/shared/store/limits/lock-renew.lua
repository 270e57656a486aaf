-- Renews the lease of a call's lock.
--
-- KEYS  1 key prefix of locks
-- ARGV  1 call ID  2 fence  3 lease, ms
-- Returns {'held'} · {'lost'}: its lease has expired and the lock went to others, or a newer attempt has it
local now, leaseMs = nowMs(), tonumber(ARGV[3])
local call = KEYS[1] .. 'call:' .. ARGV[1]
local known = redis.call('HMGET', call, 'resource', 'mode', 'fence')
if not known[1] or known[3] ~= ARGV[2] then return {'lost'} end
local holders, member = KEYS[1] .. 'holders:' .. known[1], known[2] .. ARGV[1]
if not redis.call('ZSCORE', holders, member) then return {'lost'} end
redis.call('ZADD', holders, now + leaseMs, member)
for _, key in ipairs({call, holders, KEYS[1] .. 'waiters:' .. known[1]}) do redis.call('PEXPIRE', key, 3 * leaseMs) end
return {'held'}
