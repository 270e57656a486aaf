-- Lets those who wait longest have their turns at a resource, as many as may have it together.
--
-- Of a resource there are kept: its holders, by the end of their lease, and those who wait, by when they asked; both as 'x' (has it to
-- itself) or 's' (shares it) and the call ID. Of each such call: resource, mode, fence (0 until its attempt came), job, granted.
--
-- KEYS  1 key prefix of turns
-- ARGV  1 resource  2 lease, ms
-- Returns the IDs of the jobs that may be taken now
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
  -- One that has not asked for long is forgotten.
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
