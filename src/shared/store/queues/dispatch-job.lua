-- Dispatches a job to a worker with capacity: the job becomes active, and is sent in a message (`DispatchReader`).
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 the worker, as idle_worker returns it  2 job ID  3 name of the tool  4 the job's data (JSON)  5 '1' when it is kept after its
--       end  6 lock token  7 fence of its attempt, '' when the worker must start it  8 request  9 signature  10 circuit's name
--       11 the circuit as stored
local queue, worker, jobId = KEYS[1], ARGV[1], ARGV[2]
redis.call('SET', queue .. jobId .. ':lock', ARGV[6], 'PX', worker.leaseMs)
emit(queue, 'event', 'active', 'jobId', jobId, 'prev', 'waiting')
deferWrite('LPUSH', queue .. 'active', jobId)
worker.capacity = worker.capacity - 1
worker.pushed = worker.pushed + 1
local lines = worker.lines
local size = #lines
lines[size + 1], lines[size + 2], lines[size + 3], lines[size + 4], lines[size + 5] = ARGV[6], jobId, ARGV[3], ARGV[4], ARGV[5]
lines[size + 6], lines[size + 7], lines[size + 8], lines[size + 9], lines[size + 10] = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
