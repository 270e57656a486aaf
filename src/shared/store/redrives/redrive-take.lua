-- Takes a redrive that runs and that no other process holds: the next fence, for as long as the lease.
--
-- KEYS  1 the redrive
-- ARGV  1 lease, ms
-- Returns {code, now, …}: taken fence position · held ms (until the lease of another process ends) · ended
local now = nowMs()
local state, leaseUntilMs, position = unpack(redis.call('HMGET', KEYS[1], 'state', 'leaseUntilMs', 'position'))
if state ~= 'running' then return {'ended', now} end
local left = tonumber(leaseUntilMs or 0) - now
if left > 0 then return {'held', now, left} end
redis.call('HSET', KEYS[1], 'leaseUntilMs', text(now + ARGV[1]))
return {'taken', now, redis.call('HINCRBY', KEYS[1], 'fence', 1), tonumber(position)}
