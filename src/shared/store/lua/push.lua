-- Gives a new job to a worker that has room for it: the job is active from the beginning, and travels in a message.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 the worker, as idle_worker returns it  2 job ID  3 name of the tool  4 time, ms  5 the job's data (JSON)  6 its options (JSON)
--       7 largest length of the event stream  8 lock token  9 what begin returns of its attempt, or {'apart'}
local queue, worker, jobId = KEYS[1], ARGV[1], ARGV[2]
local events, now = queue .. 'events', nowMs()
redis.call('HSET', queue .. jobId, 'name', ARGV[3], 'data', ARGV[5], 'opts', ARGV[6], 'timestamp', ARGV[4], 'delay', '0', 'priority', '0',
  'processedOn', text(now), 'ats', '1')
redis.call('SET', queue .. jobId .. ':lock', ARGV[8], 'PX', worker.leaseMs)
redis.call('XADD', events, 'MAXLEN', '~', ARGV[7], '*', 'event', 'added', 'jobId', jobId, 'name', ARGV[3])
redis.call('XADD', events, '*', 'event', 'active', 'jobId', jobId, 'prev', 'waiting')
later('LPUSH', queue .. 'active', jobId)
worker.room = worker.room - 1
worker.jobs[#worker.jobs + 1] = {
  ARGV[8], {{'name', ARGV[3], 'data', ARGV[5], 'opts', ARGV[6], 'timestamp', ARGV[4], 'processedOn', text(now)}, jobId, 0, 0, worker.enough},
  ARGV[9]}
