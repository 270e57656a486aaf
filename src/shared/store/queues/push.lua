-- Dispatches a new job to a worker with capacity: the job is active from the beginning.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 the worker, as idle_worker returns it  2 job ID  3 name of the tool  4 the job's data (JSON)  5 '1' when it is kept after its
--       end  6 time, ms  7.. lock token and attempt, the arguments 6 to 11 of dispatch_job
local queue, worker, jobId = KEYS[1], ARGV[1], ARGV[2]
redis.call('HSET', queue .. jobId, 'name', ARGV[3], 'data', ARGV[4], 'opts', job_options(ARGV[5]), 'timestamp', ARGV[6],
  'processedOn', text(nowMs()), 'ats', '1')
emit(queue, 'event', 'added', 'jobId', jobId, 'name', ARGV[3])
dispatch_job({queue}, {worker, jobId, ARGV[3], ARGV[4], ARGV[5], unpack(ARGV, 7)})
