-- Puts a call's job into its queue: what BullMQ's addStandardJob and addPrioritizedJob do for an ordinary job. If no job waits, or the call
-- was queued before (no line), the job goes to the list that is served first; else to its fair queue.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 job ID  2 name of the tool  3 time, ms  4 the job's data (JSON)  5 '1' when it is kept after its end
--       6, 7 of a new call: line and session, the arguments of enqueue_fair  8 its need
local queue, jobId = KEYS[1], ARGV[1]
local job, wait = queue .. jobId, queue .. 'wait'
redis.call('HSET', job, 'name', ARGV[2], 'data', ARGV[4], 'opts', job_options(ARGV[5]), 'timestamp', ARGV[3])
emit(queue, 'event', 'added', 'jobId', jobId, 'name', ARGV[2])
emit(queue, 'event', 'waiting', 'jobId', jobId)
local line = ARGV[6]
-- Some workers do not support its need: it goes to the line that they skip.
local isSelective = line and incompatibleWorkers(queue)[ARGV[8]]
if isSelective then line = line .. '\n' .. ARGV[8] end
local others = pendingWrite('LPUSH', wait) or pendingWrite('ZADD', queue .. 'prioritized')
if isSelective or line and (others or redis.call('EXISTS', wait, queue .. 'prioritized') > 0) then
  enqueue_fair({queue}, {jobId, line, ARGV[7]})
  -- For skip-worker.lua.
  if ARGV[6] ~= PLAIN_LINE then redis.call('HSET', job, 'line', ARGV[6]) end
else
  deferWrite('LPUSH', wait, jobId)
end
if others then return end
-- Sets the marker for a worker. A queue that is paused or at its limit gets none: BullMQ sets it afterwards.
local settings = redis.call('HMGET', queue .. 'meta', 'paused', 'concurrency')
local full = settings[2] and redis.call('LLEN', queue .. 'active') >= tonumber(settings[2])
if not settings[1] and not full then deferWrite('ZADD', queue .. 'marker', '0', '0') end
