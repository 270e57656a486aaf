-- Takes the next jobs of a queue and starts their attempts (begin_taken).
--
-- KEYS  1 circuits  2 the queue's wait list
-- ARGV  1 key prefix of records  2 key prefix of inboxes  3 key prefix of the queue  4 lock token  5 the worker's time, ms
--       6 lock and lease, ms  7 worker ID  8 token of the attempts  9 how many at most  10 workers that take from this queue
--       11 name under which jobs are pushed to the worker, '' for none  12, 13 its free lanes and the pushed jobs that it received, as
--       room_of takes them
-- Returns {BullMQ's answer, what begin_taken says of it, …}, for one job, or for none, at least; nothing when the jobs that are on
-- their way fill all lanes
local queue = ARGV[3]
local room = room_of(queue, ARGV[11], ARGV[12], ARGV[13])
if room < 1 then return {} end
local jobs = next_jobs({queue}, {ARGV[4], ARGV[6], math.min(ARGV[9], room), ARGV[10]})
if not jobs then
  local now = nowMs()
  jobs = {moveToActive(
    keysOf(queue, {'wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc', 'marker'}),
    {queue, now, {token = ARGV[4], lockDuration = ARGV[6]}})}
  onClockOf(ARGV[5], jobs[1], now)
end
local answer = begin_taken({ARGV[1], KEYS[1]}, {jobs, ARGV[7], ARGV[6], ARGV[8], ARGV[2]})
for position = 1, #answer, 2 do
  if answer[position + 1] then room = room - 1 end
end
if ARGV[11] ~= '' then redis.call('ZADD', queue .. 'pushable', room, ARGV[11]) end
return answer
