-- Ends a call together with its job and goes on to the next one, in one step. A job that another attempt holds is left alone.
--
-- KEYS  1 to 6 as settle takes them  7 the queue's wait list
-- ARGV  1 key prefix of records  2 key prefix of inboxes  3 key prefix of the queue  4 lock token  5 the worker's time, ms
--       6 lock and lease, ms  7 worker ID  8 token of the next attempt  9 '1' takes the next job  10 job ID
--       11 the job's return value (JSON)  12 how many finished jobs are kept, 0 keeps none  13 largest length of the event stream
--       14.. as settle takes them
-- Returns {settle's code, the next job or BullMQ's code for none, the answer of begin_taken}
local SETTLE_ARGS = 13
local written = settle(KEYS, {unpack(ARGV, SETTLE_ARGS + 1)})[1]
if written == 'fenced' then return {written} end
local queue, kept, job = ARGV[3], tonumber(ARGV[12]), nil
local completed = kept == 0 and complete_job({queue}, {ARGV[10], ARGV[4], ARGV[11], ARGV[13]})
if completed then
  if ARGV[9] == '1' then job = (next_jobs({queue}, {ARGV[4], ARGV[6], 1, 1}) or {})[1] end
  if not job then
    if redis.call('EXISTS', queue .. 'active', queue .. 'wait') == 0 then redis.call('XADD', queue .. 'events', '*', 'event', 'drained') end
    return {written, 0}
  end
else
  local now = nowMs()
  job = moveToFinished(
    keysOf(queue, {
      'wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc', 'completed', ARGV[10],
      'metrics:completed', 'marker'}),
    {ARGV[10], now, 'returnvalue', ARGV[11], 'completed', ARGV[9], queue,
      {token = ARGV[4], lockDuration = ARGV[6], keepJobs = {count = kept}, attempts = 1, maxMetricsSize = ''}})
  onClockOf(ARGV[5], job, now)
end
return {written, job, begin_taken({ARGV[1], KEYS[3]}, {job, ARGV[7], ARGV[6], ARGV[8], ARGV[2]})}
