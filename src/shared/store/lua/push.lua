-- Gives a new job to a worker that has room for it: the job is active from the beginning, and travels in a message (`PushReader`).
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 the worker, as idle_worker returns it  2 job ID  3 name of the tool  4 time, ms  5 the job's data (JSON)  6 '1' when it is
--       kept after its end  7 lock token  8 fence of its attempt, '' for one that is to be started by itself  9 request  10 signature
--       11 circuit's name  12 the circuit as stored
local queue, worker, jobId = KEYS[1], ARGV[1], ARGV[2]
local events, now = queue .. 'events', text(nowMs())
redis.call('HSET', queue .. jobId, 'name', ARGV[3], 'data', ARGV[5], 'opts', job_options(ARGV[6]), 'timestamp', ARGV[4],
  'delay', '0', 'priority', '0', 'processedOn', now, 'ats', '1')
redis.call('SET', queue .. jobId .. ':lock', ARGV[7], 'PX', worker.leaseMs)
redis.call('XADD', events, 'MAXLEN', '~', KEPT_EVENTS, '*', 'event', 'added', 'jobId', jobId, 'name', ARGV[3])
redis.call('XADD', events, '*', 'event', 'active', 'jobId', jobId, 'prev', 'waiting')
later('LPUSH', queue .. 'active', jobId)
worker.room = worker.room - 1
worker.pushed = worker.pushed + 1
local lines = worker.lines
local size = #lines
lines[size + 1], lines[size + 2], lines[size + 3], lines[size + 4], lines[size + 5] = ARGV[7], jobId, ARGV[3], ARGV[5], ARGV[6]
lines[size + 6], lines[size + 7], lines[size + 8], lines[size + 9], lines[size + 10] = ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12]
