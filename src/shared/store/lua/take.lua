-- Takes the next job of a queue and starts its attempt (begin_taken).
--
-- KEYS  1 circuits  2 the queue's wait list
-- ARGV  1 key prefix of records  2 key prefix of inboxes  3 key prefix of the queue  4 lock token  5 the worker's time, ms
--       6 lock and lease, ms  7 worker ID  8 token of the attempt
-- Returns {BullMQ's answer, the answer of begin_taken}
local queue = ARGV[3]
local job = next_job({queue}, {ARGV[4], ARGV[6]})
if not job then
  local now = nowMs()
  job = moveToActive(
    keysOf(queue, {'wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc', 'marker'}),
    {queue, now, {token = ARGV[4], lockDuration = ARGV[6]}})
  onClockOf(ARGV[5], job, now)
end
return {job, begin_taken({ARGV[1], KEYS[1]}, {job, ARGV[7], ARGV[6], ARGV[8], ARGV[2]})}
