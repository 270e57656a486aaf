-- Fetches the next jobs of a queue and starts their attempts (begin_fetched).
--
-- KEYS  1, 2 bases of keys: of the partition, and of what a tier's partitions share  3 key prefix of the queue
-- ARGV  1 lock token  2 the worker's time, ms  3 lock and lease, ms  4 worker ID  5 token of the attempts  6 workers that fetch from this
--       queue  7 the worker's name for direct dispatch, '' for none  8, 9 its free slots and how many dispatched jobs it received, for
--       capacity_of  10 maximum of jobs
-- Returns {BullMQ's answer, the answer of begin_fetched, …} for at least one job, or BullMQ's code for none; 'elsewhere' in place of a job
-- when all waiting jobs are left to other workers; {} when dispatched jobs that have not arrived fill all slots
local queue = KEYS[3]
local capacity = capacity_of(queue, ARGV[7], ARGV[8], ARGV[9])
if capacity < 1 then return {} end
local jobs = fetch_jobs({queue}, {ARGV[1], ARGV[3], math.min(ARGV[10], capacity), ARGV[6], ARGV[4]})
if not jobs then
  local now = nowMs()
  jobs = {moveToActive(
    keysOf(queue, {'wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc', 'marker'}),
    {queue, now, {token = ARGV[1], lockDuration = ARGV[3]}})}
  -- The fourth value of BullMQ's answer is when the next job is due: it is converted to the worker's clock.
  local answer = jobs[1]
  if type(answer) == 'table' and tonumber(answer[4] or 0) > 0 then answer[4] = answer[4] + (ARGV[2] - now) end
elseif not jobs[1] then
  jobs = {'elsewhere'}
end
local answer = begin_fetched(KEYS, {jobs, ARGV[4], ARGV[3], ARGV[5]})
for position = 1, #answer, 2 do
  if answer[position + 1] then capacity = capacity - 1 end
end
if ARGV[7] ~= '' then redis.call('ZADD', queue .. 'pushable', text(capacity), ARGV[7]) end
return answer
