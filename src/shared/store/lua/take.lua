-- Takes the next jobs of a queue and starts their attempts (begin_taken).
--
-- KEYS  1 circuits  2 the queue's wait list
-- ARGV  1 key prefix of records  2 key prefix of inboxes  3 key prefix of the queue  4 lock token  5 the worker's time, ms
--       6 lock and lease, ms  7 worker ID  8 token of the attempts  9 how many at most  10 workers that take from this queue
-- Returns {BullMQ's answer, what begin_taken says of it, …}, at least for one job or for none
local queue = ARGV[3]
local jobs = next_jobs({queue}, {ARGV[4], ARGV[6], ARGV[9], ARGV[10]})
if not jobs then
  local now = nowMs()
  jobs = {moveToActive(
    keysOf(queue, {'wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc', 'marker'}),
    {queue, now, {token = ARGV[4], lockDuration = ARGV[6]}})}
  onClockOf(ARGV[5], jobs[1], now)
end
return begin_taken({ARGV[1], KEYS[1]}, {jobs, ARGV[7], ARGV[6], ARGV[8], ARGV[2]})
