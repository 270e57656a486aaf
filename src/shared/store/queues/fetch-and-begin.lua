-- Takes the next jobs of a queue and starts their attempts (begin_taken).
--
-- KEYS  1, 2 bases of keys: of the partition, and of what a tier's partitions share  3 key prefix of the queue
-- ARGV  1 lock token  2 the worker's time, ms  3 lock and lease, ms  4 worker ID  5 token of the attempts  6 workers that take from this
--       queue  7 name under which jobs are pushed to the worker, '' for none  8, 9 its free slots and the pushed jobs that it received,
--       as capacity_of takes them  10 how many at most
-- Returns {BullMQ's answer, what begin_taken says of it, …}, for one job, or for none, at least; 'elsewhere' in the place of a job when
-- all that waits is left to other workers; nothing when the jobs that are on their way fill all slots
local queue = KEYS[3]
local capacity = capacity_of(queue, ARGV[7], ARGV[8], ARGV[9])
if capacity < 1 then return {} end
local jobs = fetch_jobs({queue}, {ARGV[1], ARGV[3], math.min(ARGV[10], capacity), ARGV[6], ARGV[4]})
if not jobs then
  local now = nowMs()
  jobs = {moveToActive(
    keysOf(queue, {'wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc', 'marker'}),
    {queue, now, {token = ARGV[1], lockDuration = ARGV[3]}})}
  -- BullMQ says when the next job is due, the fourth of four answers: puts that on the clock of the worker that asked.
  local taken = jobs[1]
  if type(taken) == 'table' and tonumber(taken[4] or 0) > 0 then taken[4] = taken[4] + (ARGV[2] - now) end
elseif not jobs[1] then
  jobs = {'elsewhere'}
end
local answer = begin_fetched(KEYS, {jobs, ARGV[4], ARGV[3], ARGV[5]})
for position = 1, #answer, 2 do
  if answer[position + 1] then capacity = capacity - 1 end
end
if ARGV[7] ~= '' then redis.call('ZADD', queue .. 'pushable', text(capacity), ARGV[7]) end
return answer
