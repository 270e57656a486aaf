-- Puts a call's job into its queue: what BullMQ's addStandardJob and addPrioritizedJob do for an ordinary job, and no more. When
-- nothing waits, or when the call has waited elsewhere already, the job goes to the list that is served first; else it stands in line.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 job ID  2 name of the tool  3 time, ms  4 the job's data (JSON)  5 '1' when it is kept after its end
--       6, 7 of a new call: line and session, as stand_in_line takes them  8 what it needs
local queue, jobId = KEYS[1], ARGV[1]
local job, wait = queue .. jobId, queue .. 'wait'
if redis.call('EXISTS', job) == 1 then return end
redis.call('HSET', job, 'name', ARGV[2], 'data', ARGV[4], 'opts', job_options(ARGV[5]), 'timestamp', ARGV[3])
emit(queue, 'event', 'added', 'jobId', jobId, 'name', ARGV[2])
emit(queue, 'event', 'waiting', 'jobId', jobId)
local line = ARGV[6]
-- Some workers lack it: it stands where they leave it to others.
local isLacked = line and lackersOf(queue)[ARGV[8]]
if isLacked then line = line .. '\n' .. ARGV[8] end
local others = gatheredFor('LPUSH', wait) or gatheredFor('ZADD', queue .. 'prioritized')
if isLacked or line and (others or redis.call('EXISTS', wait, queue .. 'prioritized') > 0) then
  enqueue_fair({queue}, {jobId, line, ARGV[7]})
  -- A worker may pass it on.
  if ARGV[6] ~= PLAIN_LINE then redis.call('HSET', job, 'line', ARGV[6]) end
else
  deferWrite('LPUSH', wait, jobId)
end
if others then return end
-- Sets the marker for a worker. A queue that is paused or at its limit gets none: BullMQ sets it afterwards.
local settings = redis.call('HMGET', queue .. 'meta', 'paused', 'concurrency')
local full = settings[2] and redis.call('LLEN', queue .. 'active') >= tonumber(settings[2])
if not settings[1] and not full then deferWrite('ZADD', queue .. 'marker', '0', '0') end
