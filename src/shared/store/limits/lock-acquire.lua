-- Acquires a resource lock for a call, or a position among its waiters, in the order of their requests.
--
-- KEYS  1 key prefix of locks
-- ARGV  1 call ID  2 job ID  3 fence of the attempt  4 lease, ms  5 resource  6 mode: 'x' exclusive, 's' shared
--       7 '1' when a lock of another resource that the call was granted before is accepted
-- Returns {code, …, the jobs to promote}:
--   granted  0             fenced  0: a newer attempt of the call has asked
--   waiting  ms: what is left of the lease that ends first
local now, fence, leaseMs = nowMs(), tonumber(ARGV[3]), tonumber(ARGV[4])
local call, member = KEYS[1] .. 'call:' .. ARGV[1], ARGV[6] .. ARGV[1]
local known = redis.call('HMGET', call, 'resource', 'mode', 'fence', 'job', 'granted')
local jobs = {}
if known[1] and tonumber(known[3]) > fence then return {'fenced', 0} end
if known[1] and (known[1] ~= ARGV[5] or known[2] ~= ARGV[6]) then
  local held, before = KEYS[1] .. 'holders:' .. known[1], known[2] .. ARGV[1]
  if ARGV[7] == '1' and redis.call('ZSCORE', held, before) then
    redis.call('ZADD', held, now + leaseMs, before)
    redis.call('HSET', call, 'fence', ARGV[3], 'job', ARGV[2])
    redis.call('PEXPIRE', call, 3 * leaseMs)
    return {'granted', 0}
  end
  jobs = lock_release(KEYS, {ARGV[1], known[4], ARGV[3], ARGV[4]})
end

local holders, waiters = KEYS[1] .. 'holders:' .. ARGV[5], KEYS[1] .. 'waiters:' .. ARGV[5]
redis.call('HSET', call, 'resource', ARGV[5], 'mode', ARGV[6], 'fence', '0', 'job', ARGV[2], 'granted', '0')
redis.call('PEXPIRE', call, 3 * leaseMs)
if not redis.call('ZSCORE', holders, member) then
  local time = redis.call('TIME')
  redis.call('ZADD', waiters, 'NX', time[1] * 1000000 + time[2], member)
  for _, job in ipairs(lock_grant(KEYS, {ARGV[5], ARGV[4]})) do
    if job ~= ARGV[2] then jobs[#jobs + 1] = job end
  end
end
if redis.call('ZSCORE', holders, member) then
  redis.call('ZADD', holders, now + leaseMs, member)
  redis.call('HSET', call, 'fence', ARGV[3], 'granted', '1')
  return {'granted', 0, unpack(jobs)}
end
return {'waiting', redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2] - now, unpack(jobs)}
