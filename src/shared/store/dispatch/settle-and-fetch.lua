-- Ends calls together with their jobs, and takes as many next ones, in one step. A job that another attempt holds is left alone.
--
-- KEYS  1 as add_records takes it  2 to 4 as take takes them
-- ARGV  1 as add_records takes it  2 to 10 the first nine as take takes them  11 number of calls
--       12.. for each call: job ID, its lock token, its return value (JSON), how many finished jobs are kept (0 keeps none), '1' when
--       a next job is wanted for it, and as the rest what settle takes
-- Returns {for each call {settle's code, BullMQ's code or 0, '1' when a next job may be given to it}, what waits behind those that were
-- taken ('more', 'none' now or later, or ''), BullMQ's answer, what begin_taken says of it, …, what add_records returns}
local JOB_ARGS, eachArgs = 5, (#ARGV - 11) / ARGV[11]
local partition, queue, leaseMs, wanted, endings = {KEYS[2], KEYS[3]}, KEYS[4], ARGV[4], 0, {}
for number = 1, tonumber(ARGV[11]) do
  local at = 12 + (number - 1) * eachArgs
  local jobId, token, value, kept, next = unpack(ARGV, at, at + JOB_ARGS - 1)
  local ok, settled = pcall(settle, partition, {unpack(ARGV, at + JOB_ARGS, at + eachArgs - 1)})
  local written, code = ok and settled[1] or 'error', 0
  if not ok then
    code = type(settled) == 'table' and settled.err or settled
  elseif written ~= 'fenced' and not (kept == '0' and complete_job({queue}, {jobId, token, value})) then
    code = moveToFinished(
      keysOf(queue, {
        'wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc', 'completed', jobId,
        'metrics:completed', 'marker'}),
      {jobId, nowMs(), 'returnvalue', value, 'completed', '0', queue,
        {token = token, lockDuration = leaseMs, keepJobs = {count = tonumber(kept)}, attempts = 1, maxMetricsSize = ''}})
  end
  local free = next == '1' and ok and written ~= 'fenced' and code == 0
  if free then wanted = wanted + 1 end
  endings[number] = {written, code, free and '1' or '0'}
end
-- Most often no job waits: one command shows that.
local jobs, more, idle = nil, false, redis.call('EXISTS', queue .. 'wait', queue .. 'prioritized', queue .. 'paused', queue .. 'delayed') == 0
local isWaiting = not idle and redis.call('EXISTS', queue .. 'wait', queue .. 'prioritized') > 0
if isWaiting then
  if wanted > 0 then jobs, more = fetch_jobs({queue}, {ARGV[2], leaseMs, wanted, ARGV[7], ARGV[5], '1'}) end
elseif (idle or redis.call('EXISTS', queue .. 'paused') == 0) and redis.call('EXISTS', queue .. 'active') == 0 then
  emit(queue, 'event', 'drained')
end
-- What is delayed for longer than a worker waits makes no job due by itself.
if not idle and not isWaiting then idle = redis.call('EXISTS', queue .. 'paused') == 0 and not isDelayedSoon(queue) end
jobs = jobs or {}
if ARGV[8] ~= '' then
  redis.call('ZADD', queue .. 'pushable', text(capacity_of(queue, ARGV[8], ARGV[9], ARGV[10]) + wanted - #jobs), ARGV[8])
end
local answer = begin_fetched(partition, {jobs, ARGV[5], leaseMs, ARGV[6]})
answer[#answer + 1] = add_records(KEYS[1], ARGV[1], MAX_UNSEALED)
return {endings, idle and 'none' or more and 'more' or '', unpack(answer)}
