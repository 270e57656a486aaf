-- Grants a resource lock to its first waiters, as many as may hold it together.
--
-- A resource has its holders, by the end of their lease, and its waiters, by the time of their request; both as 'x' (exclusive) or 's'
-- (shared) and the call ID. Each such call has: resource, mode, fence (0 until its attempt came), job, granted.
--
-- KEYS  1 key prefix of locks
-- ARGV  1 resource  2 lease, ms
-- Returns the IDs of the jobs to promote
local now, leaseMs = nowMs(), tonumber(ARGV[2])
local holders, waiters = KEYS[1] .. 'holders:' .. ARGV[1], KEYS[1] .. 'waiters:' .. ARGV[1]
local calls, jobs = KEYS[1] .. 'call:', {}
redis.call('ZREMRANGEBYSCORE', holders, '-inf', now)
local holding = redis.call('ZCARD', holders)
local exclusive = holding > 0 and string.sub(redis.call('ZRANGE', holders, 0, 0)[1], 1, 1) == 'x'
while not exclusive do
  local first = redis.call('ZRANGE', waiters, 0, 0)[1]
  if not first or (string.sub(first, 1, 1) == 'x' and holding > 0) then break end
  redis.call('ZREM', waiters, first)
  local call = calls .. string.sub(first, 2)
  local job = redis.call('HGET', call, 'job')
  -- A waiter that has not asked for long is dropped.
  if job then
    redis.call('HSET', call, 'granted', '1')
    redis.call('ZADD', holders, now + leaseMs, first)
    holding, exclusive = holding + 1, string.sub(first, 1, 1) == 'x'
    jobs[#jobs + 1] = job
  end
end
redis.call('PEXPIRE', holders, 3 * leaseMs)
redis.call('PEXPIRE', waiters, 3 * leaseMs)
return jobs
