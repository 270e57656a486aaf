-- Takes the next waiting job: what BullMQ's moveToActive does for an ordinary job of an ordinary queue, and no more. Returns nil
-- for everything else (paused or limited queues, due or prioritized jobs, an empty queue), which is left to BullMQ.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 lock token  2 lock, ms
-- Returns {{field, value, …}, job ID, 0, 0}, as BullMQ does, and 1 behind it when the queue has nothing more, now or later
local queue, now = KEYS[1], nowMs()
local settings = redis.call('HMGET', queue .. 'meta', 'paused', 'concurrency', 'max')
if settings[1] or settings[2] or settings[3] then return nil end
local due = redis.call('ZRANGEBYSCORE', queue .. 'delayed', 0, (now + 1) * 0x1000 - 1, 'LIMIT', 0, 1)
if #due > 0 then return nil end
local jobId = redis.call('RPOPLPUSH', queue .. 'wait', queue .. 'active')
if not jobId then return nil end
local job = queue .. jobId
local fields = redis.call('HMGET', job, 'name', 'data', 'opts', 'timestamp', 'ats')
redis.call('SET', job .. ':lock', ARGV[1], 'PX', ARGV[2])
redis.call('HSET', job, 'processedOn', now, 'ats', (fields[5] or 0) + 1)
redis.call('XADD', queue .. 'events', '*', 'event', 'active', 'jobId', jobId, 'prev', 'waiting')
local more = redis.call('EXISTS', queue .. 'wait', queue .. 'delayed', queue .. 'prioritized') > 0
-- Wakes another worker for the rest.
if more and redis.call('EXISTS', queue .. 'wait') == 1 then redis.call('ZADD', queue .. 'marker', '0', '0') end
return {
  {'name', fields[1] or '', 'data', fields[2] or '{}', 'opts', fields[3] or '{}', 'timestamp', fields[4] or now, 'processedOn', now},
  jobId, 0, 0, more and 0 or 1}
