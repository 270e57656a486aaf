-- Moves a parked call's delayed job to the head of its queue.
--
-- KEYS  1 record of its call  2 key prefix of the queue
-- ARGV  1 job ID
-- Returns {code}: promoted · absent (it is already queued, or not parked yet) · ended (its call has ended)
local queue, job = KEYS[2], KEYS[2] .. ARGV[1]
local state, phase = unpack(redis.call('HMGET', KEYS[1], 'state', 'phase'))
if state ~= 'inflight' then return {'ended'} end
if redis.call('ZREM', queue .. 'delayed', ARGV[1]) == 0 then return {'absent'} end
-- The wait for a worker counts from now on. A call that waits for a retry keeps its time.
if phase == 'queued' then redis.call('HSET', KEYS[1], 'notBeforeMs', nowMs()) end
redis.call('HSET', job, 'delay', '0')
redis.call('RPUSH', queue .. 'wait', ARGV[1])
emit(queue, 'event', 'waiting', 'jobId', ARGV[1], 'prev', 'delayed')
if redis.call('HEXISTS', queue .. 'meta', 'paused') == 0 then redis.call('ZADD', queue .. 'marker', '0', '0') end
return {'promoted'}
