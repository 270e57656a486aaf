-- Puts a call's job into BullMQ's delayed set until the call starts: what BullMQ's addDelayedJob does for an ordinary job.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 job ID  2 name of the tool  3 time, ms  4 the job's data (JSON)  5 '1' when it is kept after its end  6 start, ms
--       7, 8 line and session, the arguments of enqueue_fair at its start; absent for a job that is served first then
--       9 for a distant start: indexes into which the call is entered again at its start, one on each line
local queue, jobId, startAt = KEYS[1], ARGV[1], ARGV[6]
local job, delayed = queue .. jobId, queue .. 'delayed'
if redis.call('EXISTS', job) == 1 then return end
redis.call('HSET', job, 'name', ARGV[2], 'data', ARGV[4], 'opts', job_options(ARGV[5]), 'timestamp', ARGV[3],
  'delay', text(math.max(0, startAt - nowMs())), 'priority', '0')
if ARGV[9] then redis.call('HSET', job, 'startIndexes', ARGV[9]) end
if ARGV[7] then redis.call('HSET', job, 'startLine', ARGV[7], 'startSession', ARGV[8]) end
emit(queue, 'event', 'added', 'jobId', jobId, 'name', ARGV[2])
emit(queue, 'event', 'delayed', 'jobId', jobId, 'delay', startAt)
redis.call('ZADD', delayed, text(startAt * 0x1000), jobId)
-- Workers wait for the first delayed job, so only a new first one changes the marker.
local isFirst = redis.call('ZRANGE', delayed, 0, 0)[1] == jobId
if isFirst and redis.call('HEXISTS', queue .. 'meta', 'paused') == 0 then redis.call('ZADD', queue .. 'marker', startAt, '1') end
