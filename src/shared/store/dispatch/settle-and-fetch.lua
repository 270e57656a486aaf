-- Settles calls, ends their jobs and fetches as many next ones, in one step. A job that another attempt holds is left alone.
--
-- KEYS  1 key for add_records  2 to 4 the keys of fetch-and-begin.lua
-- ARGV  1 texts for add_records  2 to 10 the first nine arguments of fetch-and-begin.lua  11 number of calls
--       12.. for each call: job ID, its lock token, its return value (JSON), how many finished jobs are kept (0 keeps none), '1' to fetch
--       a next job for it, and the arguments of settle
-- Returns {for each call settle's code, or {the code, BullMQ's code or Redis' error} where the job did not end, jobs that still wait
-- ('more', 'none' now or soon, or ''), BullMQ's answer, the answer of begin_attempt, …, the answer of add_records}
local JOB_ARGS, callArgs = 5, (#ARGV - 11) / ARGV[11]
local partition, queue, leaseMs, freeSlots, endings, locks = {KEYS[2], KEYS[3]}, KEYS[4], ARGV[4], 0, {}, {}
for index = 12, #ARGV, callArgs do locks[#locks + 1] = queue .. ARGV[index] .. ':lock' end
locks = redis.call('MGET', unpack(locks))
for number = 1, tonumber(ARGV[11]) do
  local index = 12 + (number - 1) * callArgs
  local jobId, token, value, kept, next = unpack(ARGV, index, index + JOB_ARGS - 1)
  local ok, settled = pcall(settle, partition, {unpack(ARGV, index + JOB_ARGS, index + callArgs - 1)})
  local written, code = ok and settled[1] or 'error', 0
  if not ok then
    code = type(settled) == 'table' and settled.err or settled
  elseif written ~= 'fenced' and not (kept == '0' and complete_job({queue}, {jobId, token, locks[number], value})) then
    code = moveToFinished(
      keysOf(queue, {
        'wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc', 'completed', jobId,
        'metrics:completed', 'marker'}),
      {jobId, nowMs(), 'returnvalue', value, 'completed', '0', queue,
        {token = token, lockDuration = leaseMs, keepJobs = {count = tonumber(kept)}, attempts = 1, maxMetricsSize = ''}})
  end
  if next == '1' and written ~= 'fenced' and code == 0 then freeSlots = freeSlots + 1 end
  endings[number] = code == 0 and written or {written, code}
end
-- Usually no job waits: one command shows that.
local jobs, more, idle = nil, false, redis.call('EXISTS', queue .. 'wait', queue .. 'prioritized', queue .. 'paused', queue .. 'delayed') == 0
local isWaiting = not idle and redis.call('EXISTS', queue .. 'wait', queue .. 'prioritized') > 0
if isWaiting then
  if freeSlots > 0 then jobs, more = fetch_jobs({queue}, {ARGV[2], leaseMs, freeSlots, ARGV[7], ARGV[5], '1'}) end
elseif (idle or redis.call('EXISTS', queue .. 'paused') == 0) and redis.call('EXISTS', queue .. 'active') == 0 then
  emit(queue, 'event', 'drained')
end
-- Delayed jobs that are due later than the worker's next fetch do not count.
if not idle and not isWaiting then idle = redis.call('EXISTS', queue .. 'paused') == 0 and not isDelayedSoon(queue) end
jobs = jobs or {}
if ARGV[8] ~= '' then
  redis.call('ZADD', queue .. 'pushable', text(capacity_of(queue, ARGV[8], ARGV[9], ARGV[10]) + freeSlots - #jobs), ARGV[8])
end
local answer = begin_fetched(partition, {jobs, ARGV[5], leaseMs, ARGV[6]})
answer[#answer + 1] = add_records(KEYS[1], ARGV[1], MAX_UNSEALED)
return {endings, idle and 'none' or more and 'more' or '', unpack(answer)}
