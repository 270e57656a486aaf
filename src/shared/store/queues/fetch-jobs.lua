-- Fetches the next waiting jobs: what BullMQ's moveToActive does for an ordinary job of an ordinary queue. Returns nil for everything else
-- (paused or limited queues, due jobs, an empty queue), which is left to BullMQ. Jobs that come back (retries, promoted calls) and jobs in
-- lines are served first alternately.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 lock token of all jobs  2 lock, ms  3 maximum of jobs  4 workers that fetch from this queue: each gets at most a fair share of
--       several jobs  5 worker ID  6 '1' when the caller does not ask BullMQ after nil
-- Returns {{{field, value, …}, job ID, 0, 0}, …} as BullMQ does, and whether more jobs can be fetched now. The last job's fifth value is 1
-- when the worker need not fetch again: no job waits or is due soon, or a marker is set for the rest. Empty when all waiting jobs are left
-- to other workers.
local queue, now, maxJobs = KEYS[1], nowMs(), tonumber(ARGV[3])
local dueScore = (now + 1) * 0x1000 - 1
local due = #redis.call('ZRANGEBYSCORE', queue .. 'delayed', 0, dueScore, 'LIMIT', 0, 1) > 0
if due then due = start_due({queue}, {dueScore}) end
local settings = redis.call('HMGET', queue .. 'meta', 'paused', 'concurrency', 'max')
if settings[1] or settings[2] or settings[3] then return nil end
local returning, skipped = redis.call('LLEN', queue .. 'wait'), skippedLines(queue, ARGV[5])
local inAllLines, inLine = queuedJobs(queue, skipped)
local lineFirst = inLine > 0 and (due or returning > 0) and redis.call('HINCRBY', queue .. 'lines', 'served', 1) % 2 == 0
if due and not lineFirst then
  -- The turn of the due jobs was not used: the next fetch gets it.
  if ARGV[6] == '1' and inLine > 0 then redis.call('HINCRBY', queue .. 'lines', 'served', -1) end
  return nil
end
if returning + inAllLines == 0 then return nil end
if maxJobs > 1 then maxJobs = math.min(maxJobs, math.max(1, math.ceil((returning + inLine) / ARGV[4]))) end
local jobIds = lineFirst and next_fair({queue}, {maxJobs, skipped}) or {}
if #jobIds < maxJobs and returning > 0 then
  -- The last is the oldest.
  local returned = redis.call('LRANGE', queue .. 'wait', #jobIds - maxJobs, -1)
  redis.call('LTRIM', queue .. 'wait', 0, -#returned - 1)
  for position = #returned, 1, -1 do jobIds[#jobIds + 1] = returned[position] end
end
if #jobIds < maxJobs and inLine > 0 and not lineFirst then
  for _, jobId in ipairs(next_fair({queue}, {maxJobs - #jobIds, skipped})) do jobIds[#jobIds + 1] = jobId end
end
local jobs = {}
for number, jobId in ipairs(jobIds) do
  local job = queue .. jobId
  local fields = redis.call('HMGET', job, 'name', 'data', 'opts', 'timestamp', 'ats')
  redis.call('SET', job .. ':lock', ARGV[1], 'PX', ARGV[2])
  redis.call('HSET', job, 'processedOn', text(now), 'ats', text((fields[5] or 0) + 1))
  emit(queue, 'event', 'active', 'jobId', jobId, 'prev', 'waiting')
  deferWrite('LPUSH', queue .. 'active', jobId)
  jobs[number] = {
    {'name', fields[1] or '', 'data', fields[2] or '{}', 'opts', fields[3] or '{}', 'timestamp', fields[4] or now, 'processedOn', now},
    jobId, 0, 0, 0}
end
local more = due or #jobs < returning + inAllLines
-- Sets the marker for the remaining jobs.
if more then redis.call('ZADD', queue .. 'marker', '0', '0') end
local enough = more and #jobs > 1 or not more and not isDelayedSoon(queue)
if enough and #jobs > 0 then jobs[#jobs][5] = 1 end
return jobs, more
